"""One keep-alive connection to one replica's metrics endpoint, with as little Python per page as it takes.

A page of 50 KB arrives in one or two reads into a borrowed buffer, is framed in place and copied once. Buffers are
borrowed only while an answer is under way, so a thousand idle connections hold none.
"""

from __future__ import annotations

import asyncio
from typing import Protocol, cast

from kilocard.scrape.framing import CHUNKED, UNTIL_CLOSE, Chunks, FramingError, Head, parse_head

#: fits a vLLM page (50 KB) with its head and room to grow
BUFFER_SIZE = 128 * 1024
#: kept for use again; more are under way only when many replicas are slow at once
KEPT_BUFFERS = 32


class Buffers:
    """Spare buffers of BUFFER_SIZE."""

    def __init__(self) -> None:
        self._spare: list[bytearray] = []

    def borrow(self) -> bytearray:
        return self._spare.pop() if self._spare else bytearray(BUFFER_SIZE)

    def give_back(self, buffer: bytearray) -> None:
        if len(buffer) == BUFFER_SIZE and len(self._spare) < KEPT_BUFFERS:
            self._spare.append(buffer)


class Listener(Protocol):
    """Who asked. Called at most once for each `ask`; `closed` whenever the connection is gone without one."""

    def answered(self, line: Line, head: Head, body: bytes) -> None: ...

    def broke(self, line: Line, reason: str, *, unheard: bool, too_large: bool) -> None: ...

    def closed(self, line: Line) -> None: ...


class Line(asyncio.BufferedProtocol):
    __slots__ = ("_asked", "_buffer", "_buffers", "_chunks", "_filled", "_head", "_listener", "_max_bytes", "transport")

    def __init__(self, listener: Listener, buffers: Buffers, max_bytes: int) -> None:
        self.transport: asyncio.Transport | None = None
        self._listener = listener
        self._buffers = buffers
        self._max_bytes = max_bytes
        self._asked = False
        self._buffer: bytearray | None = None
        self._filled = 0
        self._head: Head | None = None
        self._chunks: Chunks | None = None

    def ask(self, request: bytes) -> None:
        """Send a request. The listener hears of its answer."""
        assert self.transport is not None and not self._asked
        self._asked = True
        self._filled = 0
        self._head = self._chunks = None
        self.transport.write(request)

    @property
    def is_open(self) -> bool:
        return self.transport is not None and not self.transport.is_closing()

    def abort(self) -> None:
        """Close without a word to the listener."""
        self._asked = False
        self._release()
        if self.transport is not None:
            self.transport.abort()
            self.transport = None

    # --- asyncio.BufferedProtocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        buffer = self._buffer
        if buffer is None:
            buffer = self._buffer = self._buffers.borrow()
        if self._filled == len(buffer):
            buffer = self._grow(2 * len(buffer))
        return memoryview(buffer)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        if not self._asked:
            # bytes that nobody asked for: what follows could not be matched to a request
            self.abort()
            self._listener.closed(self)
            return
        self._filled += nbytes
        try:
            self._look()
        except FramingError as error:
            self._break(str(error))

    def eof_received(self) -> None:
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        if self.transport is None:
            return  # our own abort
        head, self.transport = self._head, None
        if not self._asked:
            self._release()
            self._listener.closed(self)
        elif head is not None and head.length == UNTIL_CLOSE and exc is None:
            assert self._buffer is not None
            self._deliver(head, bytes(memoryview(self._buffer)[head.body_at : self._filled]))
        else:
            when = "in the middle of its answer" if self._filled else "without an answer"
            self._break(f"closed the connection {when}" + (f" ({exc})" if exc else ""), unheard=not self._filled)

    # --- the answer ---

    def _look(self) -> None:
        buffer, head = self._buffer, self._head
        assert buffer is not None
        if head is None:
            head = self._head = parse_head(buffer, self._filled)
            if head is None:
                return
            if head.length == CHUNKED:
                self._chunks = Chunks(head.body_at)
            elif head.length > self._max_bytes:
                self._too_large(f"{head.length} bytes")
                return
            elif head.body_at + head.length > len(buffer):
                buffer = self._grow(head.body_at + head.length + 1)  # one byte more: the buffer is never full
        if self._chunks is not None:
            body = self._chunks.feed(buffer, self._filled)
            if body is not None:
                self._deliver(head, body, surplus=self._filled > self._chunks.at)
            elif self._filled > 2 * self._max_bytes + len(buffer) or self._chunks.size > self._max_bytes:
                self._too_large(f"more than {self._max_bytes} bytes")
        elif head.length == UNTIL_CLOSE:
            if self._filled - head.body_at > self._max_bytes:
                self._too_large(f"more than {self._max_bytes} bytes")
        else:
            end = head.body_at + head.length
            if self._filled >= end:
                self._deliver(head, bytes(memoryview(buffer)[head.body_at : end]), surplus=self._filled > end)

    def _deliver(self, head: Head, body: bytes, *, surplus: bool = False) -> None:
        self._asked = False
        self._release()
        if (surplus or not head.keep_alive) and self.transport is not None:
            self.abort()
        self._listener.answered(self, head, body)

    def _too_large(self, said: str) -> None:
        self.abort()
        reason = f"the page is too large: {said}, and {self._max_bytes} are allowed"
        self._listener.broke(self, reason, unheard=False, too_large=True)

    def _break(self, reason: str, *, unheard: bool = False) -> None:
        self.abort()
        self._listener.broke(self, reason, unheard=unheard, too_large=False)

    # --- the buffer ---

    def _grow(self, size: int) -> bytearray:
        old = self._buffer
        assert old is not None
        # a new one, because the event loop may still hold a view of the old one
        new = bytearray(size)
        new[: self._filled] = memoryview(old)[: self._filled]
        self._buffers.give_back(old)
        self._buffer = new
        return new

    def _release(self) -> None:
        if self._buffer is not None:
            self._buffers.give_back(self._buffer)
            self._buffer = None
            self._filled = 0
