"""Whether somebody listens on an address: asked before a gateway opens the files that a running one may have open, and
before workers bind with SO_REUSEPORT, which would let them share its port unnoticed."""

from __future__ import annotations

import errno
import socket


def taken(host: str, port: int) -> OSError | None:
    """The error that listening there would end with, where somebody listens already.

    None where nobody does. Other errors (an address that this machine does not have) are left to who listens.
    """
    if not port:
        return None
    try:
        places = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, proto, _, place in places:
            with socket.socket(family, kind, proto) as sock:
                # as servers do: a port that only lingers after a close counts as free
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                sock.bind(place)
                sock.listen(1)  # two sockets that are only bound get on with each other
    except OSError as error:
        return error if error.errno == errno.EADDRINUSE else None
    return None
