"""Ports for processes that tests start."""

from __future__ import annotations

import socket

#: a socket that is bound and does not listen keeps its port from all who take any free one, and who sets SO_REUSEADDR
#: or SO_REUSEPORT, as servers do, can listen there
_kept: list[socket.socket] = []


def free_port() -> int:
    """Nobody listens there, and no other socket of this machine gets it while the tests run."""
    taken = socket.socket()
    for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
        taken.setsockopt(socket.SOL_SOCKET, option, 1)
    taken.bind(("127.0.0.1", 0))
    _kept.append(taken)
    return int(taken.getsockname()[1])
