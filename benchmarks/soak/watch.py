"""Looks at the gateway from outside all the time: counters that can't be, memory, files, and pauses of this machine."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field

from benchmarks.soak.cluster import GatewayProcess, memory_kib, open_files
from kilocard.core.errors import KilocardError


@dataclass(frozen=True)
class Sample:
    """Of all processes of the gateway together; memory by process."""

    at: float
    memory_kib: dict[int, int] = field(hash=False)
    files: int
    in_flight: int
    held: int
    connections: int
    #: retries that were not made for want of budget, so far
    denied: int

    @property
    def kib(self) -> int:
        return sum(self.memory_kib.values())


class Watch:
    """`pauses`: times (from, to) in which this process or the gateway did not get the processor."""

    def __init__(self, gateway: GatewayProcess) -> None:
        self.samples: list[Sample] = []
        self.violations: list[str] = []
        self.pauses: list[tuple[float, float]] = []
        self._gateway = gateway

    async def run(self) -> None:
        await asyncio.gather(self._look(), self._feel())

    async def _look(self) -> None:
        gateway = self._gateway
        alone = gateway.layout.workers == 1
        while True:
            asked = time.monotonic()
            try:
                state = await gateway.state()
            except KilocardError as error:
                self.violations.append(f"GET /state failed: {error}")
                await asyncio.sleep(1.0)
                continue
            now = time.monotonic()
            if now - asked > 0.5 and (alone or now - asked > 1.5):  # a dead worker is waited for, for a second
                self.pauses.append((asked, now))
            whole = state["gateway"]
            on_replicas = sum(replica["in_flight"] for replica in state["replicas"])
            # A request with a hedge is on two replicas.
            if on_replicas / 2 + whole["held"] > whole["in_flight"]:
                self.violations.append(f"{on_replicas} in flight + {whole['held']} held of {whole['in_flight']}")
            for name in ("in_flight", "held", "connections", "buffered_bytes"):
                if whole[name] < 0:
                    self.violations.append(f"{name} is {whole[name]}")
            self.violations += [
                f"{row['id']} has in_flight {row['in_flight']}"
                for row in state["replicas"] + state["tenants"]
                if row["in_flight"] < 0
            ]
            denied = sum(model["retries_denied"] for model in state["models"])
            pids = gateway.pids()
            memory = {pid: kib for pid in pids if (kib := memory_kib(pid)) is not None}
            self.samples.append(
                Sample(now, memory, open_files(pids), whole["in_flight"], whole["held"], whole["connections"], denied)
            )
            await asyncio.sleep(max(0.0, asked + 0.25 - time.monotonic()))

    async def _feel(self) -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.05)
            now = time.monotonic()
            if now - before > 0.5:
                self.pauses.append((before, now))

    def paused(self, since: float, until: float) -> bool:
        return any(begin <= until and end >= since for begin, end in self.pauses)

    def denied(self, since: float, until: float) -> int:
        """Retries that were not made in that time for want of budget, and within a look of it."""
        first = max(0, bisect_left(self.samples, since, key=_at) - 1)
        last = min(len(self.samples) - 1, bisect_right(self.samples, until, key=_at) + 1)
        # A worker that dies takes what it had counted with it.
        return max(0, self.samples[last].denied - self.samples[first].denied) if self.samples else 0


def _at(sample: Sample) -> float:
    return sample.at


def slope(points: list[tuple[float, float]]) -> float:
    """Least squares, units a second."""
    if len(points) < 3:
        return 0.0
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0
