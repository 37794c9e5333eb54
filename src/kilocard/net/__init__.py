"""Small asyncio HTTP/1.1 server and client for what is not the hot path.

Admin pages, scraping, health checks and the emulator use it. Knows no engine and no policy.
"""
