"""Clients that are gone without our reading of it.

Who vanishes without a word (a cable, a NAT that forgot, a machine without power) leaves a connection half open: nothing
comes, not even its end. The kernel finds out; a listening socket's options are those of the connections that it accepts
(Linux), so this costs nothing per connection. Who says goodbye while we do not read is known to the kernel as well.
"""

from __future__ import annotations

import select
import socket
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import asyncio

#: a client that says nothing is asked after this many seconds, then this often, and is gone after so many silences
IDLE, EVERY, SILENCES = 30, 10, 3


class Socket(Protocol):
    def setsockopt(self, level: int, option: int, value: int, /) -> None: ...


def notice_dead_peers(listener: Socket, patience: float) -> None:
    """`patience`: seconds that what was sent may stay unacknowledged. Without that bound Linux tries for 15 minutes,
    and a stream to nobody keeps its engine busy. Options that a system does not have are left out."""
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", IDLE),
        ("TCP_KEEPINTVL", EVERY),
        ("TCP_KEEPCNT", SILENCES),
        ("TCP_USER_TIMEOUT", int(patience * 1000)),
    ):
        option = getattr(socket, name, None)
        if option is not None:
            listener.setsockopt(socket.IPPROTO_TCP, option, value)


def socket_below(transport: asyncio.BaseTransport) -> Any:
    """The kernel's side of a client's connection, under TLS too; None where there is none."""
    return transport.get_extra_info("socket") or transport.get_extra_info("below")


def hung_up(transport: asyncio.BaseTransport) -> bool:
    """Whether the client has ended its side, though it sent more than was read of it; False where nobody can tell."""
    end = getattr(select, "POLLRDHUP", 0)
    lent = socket_below(transport)
    if not end or lent is None or lent.fileno() < 0:
        return False
    poll = select.poll()
    poll.register(lent.fileno(), end)
    return bool(poll.poll(0))
