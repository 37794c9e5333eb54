"""One client connection: bytes out, one response at a time in. Framing by httptools (llhttp)."""

from __future__ import annotations

import asyncio
from collections import deque
from enum import Enum
from typing import cast

import httptools

from kilocard.core.errors import UpstreamError

#: body bytes that wait for the reader before the socket is told to pause
HIGH_WATER = 256 * 1024
#: a response head larger than this is no response that we can use
MAX_HEAD = 64 * 1024


class _Phase(Enum):
    IDLE = "idle"
    HEAD = "head"
    BODY = "body"
    DONE = "done"


class Connection(asyncio.Protocol):
    """Sends one request at a time and hands out its response: `head()`, then `chunk()` until None.

    Every failure is an UpstreamError with the URL in it; after one the connection is of no more use. `got_bytes`
    says whether anything of the present response came: a reused connection that died before may be tried again.
    """

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.got_bytes = False
        self.status = 0
        self.headers: dict[str, str] = {}
        self._url = ""
        self._phase = _Phase.IDLE
        self._head_only = False
        self._head_bytes = 0
        self._chunks: deque[bytes] = deque()
        self._buffered = 0
        self._paused = False
        #: code and message of the UpstreamError that ends it: an error kept here would point back to us, by its frames
        self._failure: tuple[str, str] | None = None
        self._lost = False
        self._surplus = False
        self._keep_alive = False
        self._waiter: asyncio.Future[None] | None = None

    # --- for the client ---

    def send(self, request: bytes, *, url: str, head_only: bool) -> None:
        """Write a request. `head_only` for HEAD: the response then has no body whatever its headers say."""
        assert self._phase is _Phase.IDLE, "one request at a time"
        self._url, self._head_only = url, head_only
        self._phase, self.got_bytes, self._head_bytes = _Phase.HEAD, False, 0
        self.status, self.headers = 0, {}
        if self._lost or self.transport is None or self.transport.is_closing():
            self._fail("reset", "connection is closed")
            return
        self.transport.write(request)

    async def head(self) -> None:
        """Wait for the status line and headers: `status` and `headers` are then set."""
        while self._phase is _Phase.HEAD:
            await self._progress()

    async def chunk(self) -> bytes | None:
        """The next piece of the body as it came; None at its end."""
        while not self._chunks:
            if self._phase is _Phase.DONE:
                return None
            await self._progress()
        piece = self._chunks.popleft()
        self._buffered -= len(piece)
        if self._paused and self._buffered < HIGH_WATER // 2 and self.transport and not self._lost:
            self._paused = False
            self.transport.resume_reading()
        return piece

    def release(self) -> bool:
        """The response was read to its end: ready for the next request? If not, close it."""
        again = (
            self._phase is _Phase.DONE
            and not self._chunks
            and not self._head_only
            and not (self._lost or self._surplus)
            and self._failure is None
            and self.transport is not None
            and not self.transport.is_closing()
            and self._keep_alive
        )
        if again:
            self._phase = _Phase.IDLE
        return again

    @property
    def is_idle(self) -> bool:
        """Open, with nothing asked and nothing said."""
        return self._phase is _Phase.IDLE and not self._lost and self._failure is None

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    # --- waiting ---

    async def _progress(self) -> None:
        if self._failure is not None:
            code, message = self._failure
            raise UpstreamError(message, code=code)
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _head_too_large(self) -> None:
        self._fail("protocol", f"response head is larger than {MAX_HEAD} bytes")

    def _fail(self, code: str, what: str) -> None:
        if self._failure is None:
            self._failure = code, f"{self._url}: {what}"
        self._wake()
        self.abort()

    # --- asyncio.Protocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        # Not before: it points back to us, and only connection_lost takes it away.
        self._parser = httptools.HttpResponseParser(self)

    def data_received(self, data: bytes) -> None:
        if self._failure is not None:
            return
        if self._phase in (_Phase.IDLE, _Phase.DONE):
            # nobody asked: what follows can't be matched to a request
            self._fail("protocol", "sent bytes that no request asked for")
            return
        self.got_bytes = True
        if self._phase is _Phase.HEAD:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail("protocol", "answered with a protocol upgrade that was not asked for")
        except httptools.HttpParserError as error:
            self._fail("protocol", f"what came back is not HTTP/1.1 ({error}): starts with {bytes(data[:60])!r}")
        if self._phase is _Phase.HEAD and self._head_bytes > MAX_HEAD:
            self._head_too_large()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        del self._parser
        if self._phase is _Phase.BODY and exc is None and not self._framed() and self._failure is None:
            self._phase = _Phase.DONE  # a body without length ends with the connection
        elif self._phase in (_Phase.HEAD, _Phase.BODY):
            when = "in the middle of its response" if self.got_bytes else "without an answer"
            self._fail("reset", f"closed the connection {when}" + (f" ({exc})" if exc else ""))
        self._wake()

    def _framed(self) -> bool:
        return "content-length" in self.headers or "chunked" in self.headers.get("transfer-encoding", "").lower()

    # --- httptools callbacks ---

    def on_message_begin(self) -> None:
        if self._phase is _Phase.DONE:
            self._surplus = True  # a second response behind the first: never take it for an answer

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._phase is not _Phase.HEAD:
            return  # trailers
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        self.headers[key] = f"{self.headers[key]}, {text}" if key in self.headers else text

    def on_headers_complete(self) -> None:
        if self._phase is not _Phase.HEAD:
            return
        self.status = self._parser.get_status_code()
        if sum(map(len, self.headers.values())) > MAX_HEAD:
            self._head_too_large()
        elif self.status < 200:
            self.headers = {}  # 100 Continue, 103 Early Hints: the real head follows
        else:
            self._phase = _Phase.DONE if self._head_only else _Phase.BODY

    def on_body(self, data: bytes) -> None:
        if self._phase is not _Phase.BODY:
            return
        self._chunks.append(data)
        self._buffered += len(data)
        if self._buffered > HIGH_WATER and not self._paused and self.transport is not None and not self._lost:
            self._paused = True
            self.transport.pause_reading()

    def on_message_complete(self) -> None:
        self._keep_alive = bool(self._parser.should_keep_alive())  # the parser forgets it after this call
        if self._phase is _Phase.BODY:
            self._phase = _Phase.DONE
