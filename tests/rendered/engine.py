"""An engine whose streams go on when a test says so, and a client that reads them event by event."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import ClassVar

_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class Engine:
    """Answers every POST with a stream of two events: the first after `first` seconds, the second after `go`."""

    def __init__(self, first: float = 0.0) -> None:
        self.first = first
        self.go = asyncio.Event()
        #: streams that run, and that have ever begun
        self.running = self.begun = 0
        #: a client has left before its stream's end
        self.left = asyncio.Event()
        self.port = 0
        self._server: asyncio.Server | None = None

    async def start(self, port: int = 0) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port, backlog=4096)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop_streams(self) -> None:
        """Those that run end; those that come later wait again."""
        self.go.set()
        await asyncio.sleep(0.1)
        self.go.clear()

    async def stop(self) -> None:
        self.go.set()
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next((int(x[15:]) for x in head.lower().split(b"\r\n") if x.startswith(b"content-length:")), 0)
                await reader.readexactly(length)
                if head.startswith(b"GET"):  # a health check
                    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
                    continue
                await self._stream(reader, writer)
        writer.close()

    async def _stream(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.begun += 1
        self.running += 1
        going = asyncio.ensure_future(self.go.wait())
        leaving = asyncio.ensure_future(reader.read(1))
        try:
            writer.write(_HEAD)
            await asyncio.sleep(self.first)
            writer.write(chunk(b"data: first\n\n"))
            await asyncio.wait({going, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if leaving.done() and not going.done():
                self.left.set()
                raise ConnectionResetError
            writer.write(chunk(b"data: [DONE]\n\n") + chunk(b""))
            await writer.drain()
        finally:
            self.running -= 1
            going.cancel()
            if not leaving.done():
                leaving.cancel()
            await asyncio.gather(going, leaving, return_exceptions=True)


class Stream:
    """One request: what it gets of the answer, and when."""

    #: of this test
    opened: ClassVar[list[Stream]] = []

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.opened.append(self)
        self.text = b""
        self.asked_at = time.perf_counter()

    @classmethod
    async def open(cls, port: int) -> Stream:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        stream = cls(reader, writer)
        writer.write(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}")
        return stream

    async def until(self, what: bytes, seconds: float = 5.0) -> float:
        """Read until `what` has come; how long it took from the request."""
        async with asyncio.timeout(seconds):
            while what not in self.text:
                piece = await self._reader.read(65536)
                assert piece, f"ended without {what!r}: {self.text!r}"
                self.text += piece
        return time.perf_counter() - self.asked_at

    def leave(self) -> None:
        self._writer.transport.abort()


async def all_leave() -> None:
    while Stream.opened:
        Stream.opened.pop().leave()
    await asyncio.sleep(0.05)


@asynccontextmanager
async def engines(count: int = 2, first: float = 0.0) -> AsyncIterator[list[Engine]]:
    made = [Engine(first) for _ in range(count)]
    try:
        for one in made:
            await one.start()
        yield made
    finally:
        for one in made:
            await one.stop()
        await asyncio.sleep(0.05)
