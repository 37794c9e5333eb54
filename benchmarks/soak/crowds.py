"""Now and then more requests at once than all replicas have room for: they wait in the gateway, or are refused."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable

from benchmarks.soak.clients import Client

#: seconds between two crowds, and how many come in one, as a multiple of all slots
PAUSE = (15.0, 30.0)
SIZE = (1.5, 3.5)
#: seconds after its coming in which a crowd excuses refusals for want of room
FELT = 12.0


class Crowds:
    """Sends one after the other; `times` says when."""

    def __init__(self, seed: int, slots: int, client: Callable[[int], Client]) -> None:
        self.times: list[float] = []
        self._rng = random.Random(seed + 77)
        self._slots = slots
        self._client = client
        self._number = 100_000

    async def run(self, stopping: asyncio.Event) -> None:
        while True:
            try:
                await asyncio.wait_for(stopping.wait(), self._rng.uniform(*PAUSE))
            except TimeoutError:
                size = int(self._slots * self._rng.uniform(*SIZE))
                self.times.append(time.monotonic())
                members = [self._client(self._number + place) for place in range(size)]
                self._number += size
                await asyncio.gather(*(member.once() for member in members))
            else:
                return

    def felt(self, since: float, until: float) -> bool:
        return any(came <= until and came + FELT >= since for came in self.times)
