"""A gateway's place among several workers on one port: what its supervisor does for it, and what it is given instead.

A seated gateway has the data plane and nothing else. Listening sockets are handed to it. Replicas' coming and going,
their load samples and the loads of the other workers are told it from outside (`Gateway.apply`, `plane.on_sample`,
`plane.tell`). It scrapes and discovers nothing, and has no admin listener.
"""

from __future__ import annotations

import socket
from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol

from kilocard.engines.base import MetricsPage
from kilocard.scrape.status import ScrapeStatus
from kilocard.tenancy.limits import LimitStore


class Seat(NamedTuple):
    #: bound and listening already
    sockets: Sequence[socket.socket]
    #: one for all of them
    limits: LimitStore


class Scraping(Protocol):
    """What the data plane asks of a poller."""

    def add(self, replica: str, url: str, pages: tuple[MetricsPage, ...], models: Collection[str] = (), /) -> None: ...

    def remove(self, replica: str, /) -> None: ...

    def status(self, replica: str, /) -> ScrapeStatus | None: ...

    def every(self, interval: float, /) -> None: ...

    def start(self) -> None: ...

    async def close(self) -> None: ...


class ScrapedElsewhere:
    """The supervisor's poller reads the pages."""

    def add(self, replica: str, url: str, pages: tuple[MetricsPage, ...], models: Collection[str] = ()) -> None:
        return

    def remove(self, replica: str) -> None:
        return

    def status(self, replica: str) -> ScrapeStatus | None:
        return None

    def every(self, interval: float) -> None:
        return

    def start(self) -> None:
        return

    async def close(self) -> None:
        return
