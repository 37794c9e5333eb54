"""A worker dies now and then: kill -9, with all its requests."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time

from benchmarks.soak.cluster import GatewayProcess
from benchmarks.soak.history import History
from benchmarks.soak.pauses import rest, until

#: Seconds between two: a supervisor waits for longer and longer with workers that die before they are a minute old.
PAUSES = (10.0, 15.0, 65.0, 70.0)
#: seconds until the next one serves
BACK = 15.0
KILLED = "worker killed"


class WorkerKills:
    """The one that has lived longest is spared: its memory is watched."""

    def __init__(self, gateway: GatewayProcess, history: History, seed: int) -> None:
        self._gateway = gateway
        self._history = history
        self._rng = random.Random(seed + 88)

    async def run(self, stopping: asyncio.Event) -> None:
        pause = PAUSES[0]
        while await rest(stopping, pause):
            pause = self._rng.choice(PAUSES)
            workers = await self._gateway.workers()
            spared = max(workers, key=lambda worker: float(worker["uptime_s"] or 0.0))
            victim = self._rng.choice([worker for worker in workers if worker is not spared])
            span = self._history.begin(KILLED, time.monotonic())
            os.kill(victim["pid"], signal.SIGKILL)
            slot = victim["worker"]

            async def back(slot: int = slot, pid: int = victim["pid"]) -> bool:
                workers = await self._gateway.workers()
                return any(w["worker"] == slot and w["pid"] != pid and w["state"] == "serving" for w in workers)

            if await until(back, BACK) is None:
                self._history.violations.append(f"worker {slot} was killed and did not come back within {BACK:g} s")
            span.until = time.monotonic()
