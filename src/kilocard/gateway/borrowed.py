"""A transport's socket, lent to who writes to it past the transport.

A transport's `write` is a dozen steps around one system call, all of them through memory that thousands of other
streams have pushed out of the processor's cache since (docs/decisions/0030). Whoever borrows has to see to the order:
nothing may wait in the transport. And gives the socket back in `connection_lost`, which both event loops call before
they close its descriptor. From then on each send fails, so that no byte can go to the connection that gets the same
number next.
"""

from __future__ import annotations

import struct
from socket import SO_LINGER, SOL_SOCKET, SocketType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

#: `struct linger`: on, for 0 seconds
_NOT_AT_ALL = struct.pack("ii", 1, 0)


class BorrowedSocket(SocketType):
    """Never closes its descriptor, which is the transport's."""

    __slots__ = ()

    def __del__(self) -> None:
        self.detach()


def borrow(transport: asyncio.BaseTransport) -> BorrowedSocket | None:
    """None: there is no socket, or the bytes on it are not those that are written to this transport (TLS)."""
    lent = transport.get_extra_info("socket")
    if lent is None:
        return None
    borrowed = BorrowedSocket(lent.family, lent.type, lent.proto, lent.fileno())
    borrowed.setblocking(False)
    return borrowed


def reset_at_close(transport: asyncio.BaseTransport) -> None:
    """The connection will end with a reset. (TLS has an end of its own, which a cut connection lacks.)"""
    borrowed = borrow(transport)
    if borrowed is not None:
        borrowed.setsockopt(SOL_SOCKET, SO_LINGER, _NOT_AT_ALL)
        borrowed.detach()
