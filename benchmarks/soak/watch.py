"""Looks at the gateway from outside all the time: counters that can't be, memory, files, and pauses of this machine."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from benchmarks.soak.cluster import GatewayProcess
from kilocard.core.errors import KilocardError


@dataclass(frozen=True)
class Sample:
    at: float
    memory_kib: int
    files: int
    in_flight: int
    held: int
    connections: int
    budget: float


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
        while True:
            asked = time.monotonic()
            try:
                state = await self._gateway.state()
            except KilocardError as error:
                self.violations.append(f"GET /state failed: {error}")
                await asyncio.sleep(1.0)
                continue
            now = time.monotonic()
            if now - asked > 0.5:
                self.pauses.append((asked, now))
            gateway = state["gateway"]
            on_replicas = sum(replica["in_flight"] for replica in state["replicas"])
            if on_replicas + gateway["held"] > gateway["in_flight"]:
                self.violations.append(f"{on_replicas} in flight + {gateway['held']} held of {gateway['in_flight']}")
            for name in ("in_flight", "held", "connections", "buffered_bytes"):
                if gateway[name] < 0:
                    self.violations.append(f"{name} is {gateway[name]}")
            self.violations += [
                f"{replica['id']} has in_flight {replica['in_flight']}"
                for replica in state["replicas"]
                if replica["in_flight"] < 0
            ]
            budget = min(model["retry_budget"] for model in state["models"])
            self.samples.append(
                Sample(
                    now, self._gateway.memory_kib(), self._gateway.files(), gateway["in_flight"], gateway["held"],
                    gateway["connections"], budget,
                )
            )  # fmt: skip
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

    def least_budget(self, since: float, until: float) -> float:
        """Retries that were left in that time at the least (looked at four times a second)."""
        return min((s.budget for s in self.samples if since - 1.0 <= s.at <= until + 1.0), default=float("inf"))


def slope(points: list[tuple[float, float]]) -> float:
    """Least squares, units a second."""
    if len(points) < 3:
        return 0.0
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0
