"""One response being written, and the two ways to write it: awaited with backpressure, or at once."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Iterable
from typing import NamedTuple

from kilocard.wire.http1 import LAST_CHUNK, Request, chunk, response_head

JSON = "application/json"
_NO_BODY = {204, 304}
Headers = Iterable[tuple[str, str]]


class Answer(NamedTuple):
    """What a simple handler returns instead of writing to its Reply."""

    status: int
    content_type: str
    body: bytes | str


class Gone(ConnectionError):
    """The client is no longer there, or the reply was aborted."""


class Reply:
    """Exactly one response. Wrong order (two starts, a write before the start) is a RuntimeError: a fault of ours."""

    def __init__(
        self,
        request: Request,
        transport: asyncio.Transport,
        extra_headers: tuple[tuple[str, str], ...] = (),
        *,
        close: bool = False,
    ) -> None:
        self._request = request
        self._transport = transport
        self._extra_headers = extra_headers
        self._chunked = False
        self._bodyless = False
        self._drained: asyncio.Event | None = None
        #: the connection ends after this response
        self.closes = close or not request.keep_alive
        self.started = False
        self.finished = False
        self.status = 0
        #: the client takes its bytes too slowly: whoever writes without awaiting should hold back
        self.paused = False

    @property
    def peer(self) -> str:
        """The client's IP address; empty where it is not known."""
        name = self._transport.get_extra_info("peername")
        return str(name[0]) if isinstance(name, tuple) else ""

    @property
    def gone(self) -> bool:
        return self._transport.is_closing()

    async def send(self, status: int, body: bytes | str = b"", content_type: str = JSON, headers: Headers = ()) -> None:
        """A whole response."""
        self.send_now(status, body, content_type, headers)
        await self.drain()

    def send_now(self, status: int, body: bytes | str = b"", content_type: str = JSON, headers: Headers = ()) -> None:
        """`send` without waiting for the client to take it; for bodies that are small."""
        data = body.encode() if isinstance(body, str) else body
        self._begin(status)
        if status in _NO_BODY:
            head = self._head(status, [*headers])
            data = b""
        else:
            head = self._head(status, [("content-type", content_type), ("content-length", str(len(data))), *headers])
        self._transport.write(head if self._bodyless else head + data)
        self.finished = True

    def start(self, status: int, headers: Headers = ()) -> None:
        """Begin a streamed response. Without a content-length among `headers` the body is chunked (HTTP/1.0: it ends
        with the connection)."""
        self._begin(status)
        listed = [*headers]
        sized = any(name.lower() == "content-length" for name, _ in listed)
        if not sized and status not in _NO_BODY:
            if self._request.version == "1.0":
                self.closes = True
            else:
                self._chunked = True
                listed.append(("transfer-encoding", "chunked"))
        self._transport.write(self._head(status, listed))

    async def write(self, data: bytes) -> None:
        """Part of the body; returns when the client keeps up. Raises Gone."""
        self.write_now(data)
        await self.drain()

    def write_now(self, data: bytes) -> None:
        """Part of the body, handed to the transport at once. Look at `paused` before: this never waits."""
        if not self.started or self.finished:
            raise RuntimeError("write outside of a started response")
        if self._transport.is_closing():
            raise Gone("the client has gone")
        if data and not self._bodyless:
            self._transport.write(chunk(data) if self._chunked else data)

    async def finish(self) -> None:
        self.finish_now()
        await self.drain()

    def finish_now(self, last: bytes = b"") -> None:
        """End the body, after `last` if there is any."""
        if not self.started or self.finished:
            raise RuntimeError("finish outside of a started response")
        if not self._bodyless:
            self._transport.write(chunk(last) + LAST_CHUNK if self._chunked else last)
        self.finished = True

    def abort(self) -> None:
        """Cut the connection with a reset (RST), whatever has been written. For faults made on purpose."""
        sock = self._transport.get_extra_info("socket")
        if sock is not None and not self._transport.is_closing():
            # linger 0: the kernel drops what it holds and sends RST in place of FIN
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.finished = True
        self._transport.abort()

    async def drain(self) -> None:
        """Wait until the transport's buffer is below its high-water mark. Raises Gone."""
        if self.paused:
            if self._drained is None:
                self._drained = asyncio.Event()
            self._drained.clear()
            await self._drained.wait()
        if self._transport.is_closing() and not self.finished:
            raise Gone("the client has gone")

    def set_paused(self, paused: bool) -> None:
        """The connection's word, not the handler's."""
        self.paused = paused
        if not paused and self._drained is not None:
            self._drained.set()

    def _begin(self, status: int) -> None:
        if self.started:
            raise RuntimeError("the response has been started already")
        if self._transport.is_closing():
            raise Gone("the client has gone")
        self.started = True
        self.status = status
        self._bodyless = self._request.method == "HEAD" or status in _NO_BODY

    def _head(self, status: int, headers: list[tuple[str, str]]) -> bytes:
        headers += self._extra_headers
        if self.closes:
            headers.append(("connection", "close"))
        elif self._request.version == "1.0":
            headers.append(("connection", "keep-alive"))
        return response_head(status, headers)
