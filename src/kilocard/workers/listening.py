"""The sockets of one port for several processes (SO_REUSEPORT): the kernel deals new connections out among them.

The supervisor opens all of them and hands one to each worker, and keeps its own copy. So a worker's death refuses
nobody: connections that the kernel gives to its socket wait there until the next worker takes it over.
"""

from __future__ import annotations

import socket
from typing import Any

from kilocard.gateway.server import BACKLOG, address_in_use
from kilocard.gateway.taken import taken

#: address family, and the address as `bind` takes it
Place = tuple[int, tuple[Any, ...]]


def listen(host: str, port: int, count: int) -> list[list[socket.socket]]:
    """`count` lists of listening sockets, each with one for every address of `host`. Raises BackendError.

    SO_REUSEPORT would let a second gateway of the same user share the port unnoticed, so who listens there is asked for
    first (taken.py).
    """
    opened: list[socket.socket] = []
    try:
        if error := taken(host, port):
            raise error
        addresses = dict.fromkeys(
            (family, address)
            for family, _, _, _, address in socket.getaddrinfo(
                host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
        )
        groups: list[list[socket.socket]] = [[] for _ in range(count)]
        for family, address in addresses:
            if not port and opened:  # every address of a host gets the same port
                address = (address[0], opened[0].getsockname()[1], *address[2:])
            for group in groups:
                sock = _socket(family, address)
                opened.append(sock)
                group.append(sock)
                if not address[1]:
                    address = (address[0], sock.getsockname()[1], *address[2:])
        for sock in opened:
            sock.listen(BACKLOG)
    except OSError as error:
        for sock in opened:
            sock.close()
        raise address_in_use(host, port, error) from error
    return groups


def again(places: list[Place]) -> list[socket.socket]:
    """New sockets for a slot whose old ones were closed. Raises OSError."""
    return [_listening(family, address) for family, address in places]


def _listening(family: int, address: tuple[Any, ...]) -> socket.socket:
    sock = _socket(family, address)
    sock.listen(BACKLOG)
    return sock


def _socket(family: int, address: tuple[Any, ...]) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.setblocking(False)
        sock.bind(address)
    except OSError:
        sock.close()
        raise
    return sock
