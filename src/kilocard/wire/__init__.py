"""OpenAI's wire formats and HTTP/1.1 framing without a socket.

Request peek, error bodies, server-sent events, token estimates. Pure: bytes in, values out; never opens a
connection.
"""
