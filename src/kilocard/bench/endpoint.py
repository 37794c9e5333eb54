"""Where the client sends: addresses, the head of each request, and how many sockets it may have."""

from __future__ import annotations

import resource
import socket
import ssl
from collections import deque
from typing import Any

from kilocard.bench.ask import Target
from kilocard.core.errors import UpstreamError
from kilocard.net.target import parse_target, request_bytes

#: more sockets than this are never opened, whatever the limit of open files
MOST_SOCKETS = 20_000
#: descriptors left for everything else in the process
SPARE_FILES = 100
Address = tuple[int, Any]
_SECRET_HEADERS = ("authorization", "api-key", "x-api-key")


class Endpoint:
    """Raises UsageError for a URL that is none, UpstreamError for a host that has no address."""

    def __init__(self, target: Target) -> None:
        self._place = parse_target(target.url.rstrip("/") + target.path)
        self._headers = _headers(target)
        self._heads: dict[int, bytes] = {}
        self.host = self._place.host
        self.tls = (target.tls or ssl.create_default_context()) if self._place.scheme == "https" else None
        self._all = _resolve(self._place.host, self._place.port)
        self._addresses = deque(self._all)

    @property
    def count(self) -> int:
        """Addresses of the host."""
        return len(self._all)

    def address(self) -> Address:
        """Family and address for the next connection: they take turns, as a name may stand for several servers."""
        self._addresses.rotate(-1)
        return self._addresses[-1]

    def failed(self, address: Address) -> None:
        """Nobody answers there: left out, until nobody answers anywhere."""
        if address in self._addresses:
            self._addresses.remove(address)
        if not self._addresses:
            self._addresses.extend(self._all)

    def head(self, length: int) -> bytes:
        """The head of a request with a body of so many bytes."""
        head = self._heads.get(length)
        if head is None:
            whole = request_bytes(self._place, "POST", self._headers, bytes(length), keep_alive=True)
            head = self._heads[length] = whole[: len(whole) - length]
        return head

    def masked(self, message: str) -> str:
        """Servers like to repeat the key that they refuse."""
        for name, value in self._headers:
            if name.lower() in _SECRET_HEADERS:
                message = message.replace(value.rpartition(" ")[2], "***")
        return message[:500]


def _headers(target: Target) -> list[tuple[str, str]]:
    given = {name.lower() for name, _ in target.headers}
    own = [("Content-Type", "application/json"), ("Accept-Encoding", "identity")]
    return [*target.headers, *(header for header in own if header[0].lower() not in given)]


def _resolve(host: str, port: int) -> list[Address]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise UpstreamError(f"{host}: no address: {error}", code="connect_failed") from error
    return [(family, place) for family, _, _, _, place in found]


def file_limit() -> int:
    """Sockets that this process may have, after asking for all that it can."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_SOCKETS + SPARE_FILES
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return wanted if soft == resource.RLIM_INFINITY else soft
