"""Free ports on this machine, each handed out once.

Taken from below the range that the kernel uses for outgoing connections (32768 and up on Linux, 49152 and up on
macOS): an engine may bind its port minutes after it got it, and no outgoing connection can take it meanwhile.
"""

from __future__ import annotations

import os
import socket

from kilocard.core.errors import BackendError

FIRST = 21_000
LAST = 31_999
SPAN = LAST - FIRST + 1


class Ports:
    """Hands out ports of one address. Two kilocard processes begin at different places of the range."""

    def __init__(self, host: str = "127.0.0.1", offset: int | None = None) -> None:
        self.host = host
        self._next = (os.getpid() * 97 if offset is None else offset) % SPAN
        self._taken: set[int] = set()

    def take(self) -> int:
        """A port that nobody listens on now and that `take` gave to nobody else. Raises BackendError: none left."""
        for _ in range(SPAN):
            port = FIRST + self._next
            self._next = (self._next + 1) % SPAN
            if port not in self._taken and self.is_free(port):
                self._taken.add(port)
                return port
        raise BackendError(f"no free port on {self.host} between {FIRST} and {LAST}: stop what listens there")

    def give_back(self, port: int) -> None:
        self._taken.discard(port)

    def is_free(self, port: int) -> bool:
        """Nobody listens on it. Ports that only linger after a close count as free, as they do for servers."""
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((self.host, port))
            except OSError:
                return False
        return True
