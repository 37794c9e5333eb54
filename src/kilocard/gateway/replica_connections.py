"""All connections to one replica: the idle ones, and how a fresh one is made."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import Final

from kilocard.core.errors import CapacityError, UpstreamError, UpstreamTimeout
from kilocard.gateway.head_memo import HeadMemo
from kilocard.gateway.outbox import Outbox
from kilocard.gateway.upstream import UpstreamConnection

#: an idle connection lives this long at most: less than the 5 s after which engines (uvicorn) close theirs
IDLE_SECONDS: Final = 3.0


#: connect() fails with these for want of descriptors, local ports or kernel memory
_OURS = frozenset({errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOBUFS, errno.ENOMEM})


class ReplicaConnections:
    """All connections to one replica. No upper bound of its own: the dispatcher bounds requests in flight."""

    __slots__ = ("_clock", "_closed", "_idle", "connections", "host", "host_header", "memo", "outbox", "port", "url")

    def __init__(self, url: str, clock: Callable[[], float], outbox: Outbox) -> None:
        self.url = url
        self.outbox = outbox
        host, _, port = url.removeprefix("http://").rpartition(":")
        if not host:
            host, port = port, "80"
        self.host = host.strip("[]")
        self.port = int(port)
        self.host_header = f"{host}:{port}".encode()
        self.connections: set[UpstreamConnection] = set()
        self.memo = HeadMemo()
        self._idle: list[UpstreamConnection] = []
        self._clock = clock
        self._closed = False

    def idle(self) -> UpstreamConnection | None:
        """The most recently used idle connection that is surely younger than the engine's keep-alive."""
        while self._idle:
            connection = self._idle.pop()
            # One that is just being closed looks idle for a moment; a request sent on it comes back as stale.
            if self._clock() - connection.idle_since < IDLE_SECONDS:
                return connection
            connection.transport.close()
        return None

    async def open(self, within: float) -> UpstreamConnection:
        """A fresh connection.

        Raises UpstreamError (refused, unreachable), UpstreamTimeout, and CapacityError where it is we who have no
        descriptor or port left: that says nothing about the replica.
        """
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(within):
                _, protocol = await loop.create_connection(lambda: UpstreamConnection(self), self.host, self.port)
        except TimeoutError:
            raise UpstreamTimeout(f"no connection within {within:g} s", code="connect") from None
        except OSError as error:
            if error.errno in _OURS:
                raise CapacityError(
                    f"The gateway can open no more connections: {error.strerror}.", code="no_descriptors"
                ) from error
            raise UpstreamError(f"can't connect: {error.strerror or error}", code="connect") from error
        return protocol

    def give_back(self, connection: UpstreamConnection) -> None:
        if self._closed or connection.transport.is_closing():
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
