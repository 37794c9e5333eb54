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

from kilocard.gateway.borrowed import borrow

if TYPE_CHECKING:
    from collections.abc import Callable

    from kilocard.gateway.borrowed import BorrowedSocket

log = logging.getLogger("kilocard.gateway")


class Posting(asyncio.Protocol):
    """A connection that may have something to say at the end of the turn, or past its transport (borrowed.py)."""

    __slots__ = ("_borrowed", "_posted", "transport")

    def __init__(self) -> None:
        self.transport: asyncio.Transport = None  # type: ignore[assignment]  # set before any other callback
        self._posted = b""
        self._borrowed: BorrowedSocket | None = None

    def borrow(self) -> Callable[[bytes], int] | None:
        """`send` of its socket; None where what goes there is not what is written to the transport."""
        if self._borrowed is None:
            self._borrowed = borrow(self.transport)
        return None if self._borrowed is None else self._borrowed.send

    def give_back(self) -> None:
        """The connection is lost: nothing is to be sent any more."""
        self._posted = b""
        if self._borrowed is not None:
            self._borrowed.detach()

    def send_posted(self) -> None:
        """Write it, if it is still there and the connection is."""
        posted, self._posted = self._posted, b""
        if posted and not self.transport.is_closing():
            self.transport.write(posted)


def at_the_end_of_the_turn(send: Callable[[], None]) -> None:
    """The event loop calls it when it has read all that it found readable."""
    asyncio.get_running_loop().call_soon(send)


class Outbox:
    """Connections whose `_posted` is to be written."""

    __slots__ = ("_connections", "_soon")

    def __init__(self, soon: Callable[[Callable[[], None]], None] = at_the_end_of_the_turn) -> None:
        """`soon`: calls what it is given, once."""
        self._soon = soon
        self._connections: list[Posting] = []

    def post(self, connection: Posting) -> None:
        """A request to a replica or an answer to a client waits on this connection."""
        connections = self._connections
        connections.append(connection)
        if len(connections) == 1:
            self._soon(self.send)

    def send(self) -> None:
        """Write all. What has been written or dropped in the meantime is no more there. Never raises."""
        connections, self._connections = self._connections, []
        for connection in connections:
            try:
                connection.send_posted()
            except Exception:  # one connection's trouble must not silence the others
                log.exception("a request or an answer could not be written")
                connection.transport.abort()
