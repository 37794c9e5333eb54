"""Connections to replicas: one protocol object per connection, one pool per replica.

An idle connection lives 3 s at most, below the 5 s after which engines (uvicorn) close theirs; the race that remains
(a request written just as the engine closes) shows as a reset before any byte on a reused connection and is repeated
once on a fresh one.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

import httptools

from kilocard.core.errors import UpstreamError, UpstreamTimeout
from kilocard.dispatch.events import Fault
from kilocard.gateway.heads import Headers

if TYPE_CHECKING:
    from collections.abc import Callable

IDLE_SECONDS = 3.0
#: a response head larger than this is a fault of the replica
MAX_HEAD = 64 * 1024


class Receiver(Protocol):
    """Who wants the response: the exchange that the connection carries."""

    def on_head(self, status: int, headers: Headers) -> None: ...
    def on_data(self, data: bytes) -> None: ...
    def on_complete(self) -> None: ...
    def on_fault(self, fault: Fault, detail: str) -> None: ...
    def on_stale(self) -> None:
        """A reused connection was closed before any byte of the response: repeat on a fresh one."""


class UpstreamConnection(asyncio.Protocol):
    """One HTTP/1.1 connection to a replica; carries one exchange at a time."""

    __slots__ = (
        "_body",
        "_complete",
        "_framed",
        "_got_bytes",
        "_head",
        "_head_bytes",
        "_head_done",
        "_headers",
        "_keep_alive",
        "_parser",
        "_paused",
        "_pool",
        "_reused",
        "idle_since",
        "receiver",
        "transport",
    )

    def __init__(self, pool: ReplicaConnections) -> None:
        self._pool = pool
        self._parser = httptools.HttpResponseParser(self)
        self._headers: Headers = []
        self._head: tuple[int, Headers] | None = None
        self._head_done = False
        self._head_bytes = 0
        self._body: list[bytes] = []
        self._complete = False
        self._framed = True
        self._got_bytes = False
        self._keep_alive = False
        self._reused = False
        self._paused = False
        self.idle_since = 0.0
        self.receiver: Receiver | None = None
        self.transport: asyncio.Transport = None  # type: ignore[assignment]  # set before any other callback

    # -- what the exchange calls

    def start(self, receiver: Receiver, head: bytes, body: bytes) -> None:
        """Send one request."""
        self.receiver = receiver
        self._got_bytes = False
        self._complete = False
        self._framed = True
        self._head = None
        self._head_done = False
        self._head_bytes = 0
        if len(body) <= 65536:
            self.transport.write(head + body)
        else:  # one copy less for long prompts
            self.transport.writelines((head, body))

    def pause(self, paused: bool) -> None:
        """Stop reading the response while its client does not take it."""
        if paused == self._paused or self.transport.is_closing():
            return
        self._paused = paused
        if paused:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def drop(self) -> None:
        """The exchange has no more interest: cut the connection so that the engine stops generating."""
        self.receiver = None
        self.transport.abort()

    # -- asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]  # a TCP transport reads and writes
        self._pool.connections.add(self)

    def data_received(self, data: bytes) -> None:
        receiver = self.receiver
        if receiver is None:  # an idle connection has nothing to say (408 pages, stray bytes)
            self.transport.abort()
            return
        self._got_bytes = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(Fault.PROTOCOL, f"the replica's answer is not valid HTTP: {error}")
            return
        if not self._head_done:
            if self._head is None:
                self._head_bytes += len(data)
                if self._head_bytes > MAX_HEAD:
                    self._fail(Fault.PROTOCOL, f"the replica's response head is larger than {MAX_HEAD} bytes")
                return
            self._head_done = True
            status, headers = self._head
            receiver.on_head(status, headers)
        body = self._body
        if body and self.receiver is receiver:
            piece = body[0] if len(body) == 1 else b"".join(body)
            body.clear()
            receiver.on_data(piece)
        if self._complete and self.receiver is receiver:
            self._finish(receiver)

    def eof_received(self) -> bool:
        return False  # close; connection_lost tells the exchange

    def connection_lost(self, exc: Exception | None) -> None:
        self._pool.connections.discard(self)
        self._pool.forget(self)
        del self._parser  # it points back to us: no work for the garbage collector
        receiver, self.receiver = self.receiver, None
        if receiver is None:
            return
        if not self._got_bytes and self._reused:
            receiver.on_stale()
        elif not self._framed and exc is None:
            receiver.on_complete()  # a body without length or chunks ends with the connection
        else:
            where = "in the middle of its answer" if self._got_bytes else "before it answered"
            receiver.on_fault(Fault.RESET, f"the replica closed the connection {where}")

    # -- httptools

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        headers, self._headers = self._headers, []
        status = self._parser.get_status_code()
        if status >= 200:  # 1xx are interim: the real head follows
            self._framed = status in (204, 304) or _is_framed(headers)
            self._head = (status, headers)

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        if self._parser.get_status_code() >= 200:
            self._complete = True
            self._keep_alive = self._parser.should_keep_alive()  # llhttp knows only now

    # -- inside

    def _finish(self, receiver: Receiver) -> None:
        self.receiver = None
        self._complete = False
        if self._keep_alive and self._framed and not self.transport.is_closing():
            self._reused = True
            self.pause(False)
            self._pool.give_back(self)
        else:
            self.transport.close()
        receiver.on_complete()

    def _fail(self, fault: Fault, detail: str) -> None:
        receiver, self.receiver = self.receiver, None
        self.transport.abort()
        if receiver is not None:
            receiver.on_fault(fault, detail)


def _is_framed(headers: Headers) -> bool:
    return any(name.lower() in (b"content-length", b"transfer-encoding") for name, _ in headers)


class ReplicaConnections:
    """All connections to one replica. No upper bound of its own: the dispatcher bounds requests in flight."""

    __slots__ = ("_clock", "_closed", "_idle", "connections", "host", "host_header", "port", "url")

    def __init__(self, url: str, clock: Callable[[], float]) -> None:
        self.url = url
        host, _, port = url.removeprefix("http://").rpartition(":")
        if not host:
            host, port = port, "80"
        self.host = host.strip("[]")
        self.port = int(port)
        self.host_header = f"{host}:{port}".encode()
        self.connections: set[UpstreamConnection] = set()
        self._idle: list[UpstreamConnection] = []
        self._clock = clock
        self._closed = False

    def idle(self) -> UpstreamConnection | None:
        """The most recently used idle connection that is surely younger than the engine's keep-alive."""
        while self._idle:
            connection = self._idle.pop()
            if not connection.transport.is_closing():
                if self._clock() - connection.idle_since < IDLE_SECONDS:
                    return connection
                connection.transport.close()
        return None

    async def open(self, within: float) -> UpstreamConnection:
        """A fresh connection. Raises UpstreamError (refused, unreachable) or UpstreamTimeout."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(within):
                _, protocol = await loop.create_connection(lambda: UpstreamConnection(self), self.host, self.port)
        except TimeoutError:
            raise UpstreamTimeout(f"no connection within {within:g} s", code="connect") from None
        except OSError as error:
            raise UpstreamError(f"can't connect: {error.strerror or error}", code="connect") from error
        return protocol

    def give_back(self, connection: UpstreamConnection) -> None:
        if self._closed:
            connection.transport.close()
            return
        connection.idle_since = self._clock()
        self._idle.append(connection)

    def forget(self, connection: UpstreamConnection) -> None:
        if connection in self._idle:
            self._idle.remove(connection)

    def prune(self, now: float) -> None:
        """Close idle connections that grew too old. The list is in order of age, oldest first."""
        old = 0
        for connection in self._idle:
            if now - connection.idle_since < IDLE_SECONDS:
                break
            old += 1
        for connection in self._idle[:old]:
            connection.transport.close()
        del self._idle[:old]

    def close(self) -> None:
        """No new use; connections that carry an exchange close when it ends."""
        self._closed = True
        for connection in self._idle:
            connection.transport.close()
        self._idle.clear()
