"""What goes wrong with a request, in the words of the report: a closed list, but for status and code.

`record.CUT_OFF` is the one that is no failure. A failed request keeps what was seen of it before
(first_s, gaps, usage), so that a report can say how far it came.
"""

from __future__ import annotations

#: `cancel_after_s` of the ask: the client left as planned
LEFT = "left as planned"

CONNECT_REFUSED = "connect failed: refused"
CONNECT_TIMEOUT = "connect failed: timed out"
CONNECT_FAILED = "connect failed"
TLS_FAILED = "TLS failed"
#: nothing of an answer came
RESET_BEFORE = "reset before the first byte"
CLOSED_BEFORE = "closed before the first byte"
#: the head of the answer came, no token yet
RESET_NO_TOKEN = "reset before the first token"
CLOSED_NO_TOKEN = "closed before the first token"
RESET_IN_STREAM = "reset in the stream"
#: the connection ended where the framing says that more follows
TRUNCATED = "truncated: closed in the stream"
#: the HTTP message is whole, but neither [DONE] nor a finish_reason came
NO_DONE = "no [DONE]"
NO_TOKENS = "no tokens"
TIMEOUT_BEFORE = "timed out before the first byte"
TIMEOUT_NO_TOKEN = "timed out before the first token"
TIMEOUT_IN_STREAM = "timed out in the stream"
NOT_HTTP = "not HTTP/1.1"
COMPRESSED = "compressed though none was asked for"
UNREADABLE = "unreadable event"
EVENT_TOO_LARGE = "event too large"
#: open loop: every socket that may be opened is in use
NO_SOCKET = "not sent: all sockets are in use"


def refused(status: int) -> str:
    """A status other than 200: "refused: 429"."""
    return f"refused: {status}"


def error_event(code: str) -> str:
    """The server says in the stream that it failed: "error event: internal_error"."""
    return UNREADABLE if code == "unreadable" else f"error event: {code}"
