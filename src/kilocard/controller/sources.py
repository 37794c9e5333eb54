"""Where a controller hears what gateways know."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import msgspec

from kilocard.core.clock import Clock
from kilocard.core.errors import UpstreamError
from kilocard.core.reading import GatewayReading, together
from kilocard.core.signals import Phase
from kilocard.net.client import fetch

log = logging.getLogger("kilocard.controller")

#: seconds that a gateway may take to answer
PATIENCE = 0.8
#: a gateway that has been silent for so long is gone, and what it knew with it; until then its last word counts,
#: with its age
FORGET_S = 60.0

_decode = msgspec.json.Decoder(GatewayReading).decode


class Source(Protocol):
    async def read(self) -> GatewayReading:
        """What all gateways know together. Raises KilocardError where that is not to be had at all."""

    @property
    def problems(self) -> Sequence[str]:
        """Which gateways do not answer, for people."""


class InProcess:
    """The gateway is in this process: `read` asks it."""

    problems = ()

    def __init__(self, read: Callable[[], GatewayReading]) -> None:
        self._read = read

    async def read(self) -> GatewayReading:
        return self._read()


class _Heard(NamedTuple):
    at: float
    reading: GatewayReading


class AdminPages:
    """GET /signals of the admin listeners of several gateways."""

    def __init__(self, urls: Sequence[str], clock: Clock) -> None:
        self.urls = tuple(urls)
        self._clock = clock
        self._began = clock()
        self._heard: dict[str, _Heard] = {}
        self._problems: dict[str, str] = {}

    @property
    def problems(self) -> Sequence[str]:
        return [f"{url}: {why}" for url, why in self._problems.items()]

    async def read(self) -> GatewayReading:
        await asyncio.gather(*map(self._ask, self.urls))
        now = self._clock()
        readings = [heard.reading.older(now - heard.at) for heard in self._heard.values()]
        whole = together(readings) if readings else GatewayReading()
        if now - self._began < FORGET_S and len(self._heard) < len(self.urls):
            whole = whole.older(now - self._began)  # what the others know has never been heard
        return whole

    async def _ask(self, url: str) -> None:
        try:
            answer = await fetch(f"{url}/signals", timeout=PATIENCE)
            if answer.status != 200:
                raise UpstreamError(f"it answers {answer.status}: is that an admin address?")
            self._heard[url] = _Heard(self._clock(), _decode(answer.body))
            if self._problems.pop(url, None) is not None:
                log.info("gateway %s answers now", url)
        except (UpstreamError, msgspec.MsgspecError) as error:
            problem = error.message if isinstance(error, UpstreamError) else str(error)
            if url not in self._problems:
                log.warning("gateway %s does not answer, asked again each second: %s", url, problem)
            self._problems[url] = problem
            heard = self._heard.get(url)
            if heard is not None and self._clock() - heard.at > FORGET_S:
                del self._heard[url]

    def drained(self, replica: str, since: float) -> bool:
        """Every gateway has said after `since` that it has no request left there and sends none."""
        return all(
            (heard := self._heard.get(url)) is not None and heard.at > since and _is_free(heard.reading, replica)
            for url in self.urls
        )


def _is_free(reading: GatewayReading, replica: str) -> bool:
    return all(each.phase is Phase.DRAINING and each.in_flight == 0 for each in reading.replicas if each.id == replica)
