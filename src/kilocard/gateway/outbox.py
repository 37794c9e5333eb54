"""What one turn of the event loop has to say, said at its end.

A busy gateway reads from many connections in one turn. Written one by one, each request and each answer wakes up a
process that has slept since the last one, which costs the kernel (and us, on whose time it runs) as much as the write
itself. Written together, the first wakes it and the others find it awake (docs/decisions/0028). A turn with one event
ends at once, so that where there is little to do nothing waits.

Only whole requests and whole answers wait here, one for each connection. Whatever else is written to a client goes
behind them: `ClientWriter` sees to that.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from kilocard.gateway.client_writer import ClientWriter
    from kilocard.gateway.upstream import UpstreamConnection

log = logging.getLogger("kilocard.gateway")


def at_the_end_of_the_turn(send: Callable[[], None]) -> None:
    """The event loop calls it when it has read all that it found readable."""
    asyncio.get_running_loop().call_soon(send)


class Outbox:
    """Connections whose `posted` is to be written."""

    __slots__ = ("_clients", "_replicas", "_soon")

    def __init__(self, soon: Callable[[Callable[[], None]], None] = at_the_end_of_the_turn) -> None:
        """`soon`: calls what it is given, once."""
        self._soon = soon
        self._clients: list[ClientWriter] = []
        self._replicas: list[UpstreamConnection] = []

    def request(self, replica: UpstreamConnection) -> None:
        """A request to a replica waits on this connection."""
        first = not self._replicas and not self._clients
        self._replicas.append(replica)
        if first:
            self._soon(self.send)

    def answer(self, client: ClientWriter) -> None:
        """An answer to a client."""
        first = not self._replicas and not self._clients
        self._clients.append(client)
        if first:
            self._soon(self.send)

    def send(self) -> None:
        """Write all. What has been written or dropped in the meantime is no more there. Never raises."""
        replicas, clients = self._replicas, self._clients
        self._replicas, self._clients = [], []
        for replica in replicas:
            try:
                replica.send_posted()
            except Exception:  # one connection's trouble must not silence the others
                log.exception("a request could not be written")
                replica.transport.abort()
        for client in clients:
            try:
                client.send_posted()
            except Exception:  # same
                log.exception("an answer could not be written")
                client.transport.abort()
