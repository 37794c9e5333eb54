"""Every few seconds another cluster file; every fifth is broken and has to change nothing."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.soak.cast import Tenant
from benchmarks.soak.cluster import GatewayProcess
from benchmarks.soak.history import History
from benchmarks.soak.pauses import rest, until

#: seconds between two changes, and in which one is taken over
PAUSE = (3.0, 7.0)
TAKEN_OVER = 8.0


@dataclass
class InForce:
    """Which version's limits held when. Times are this process's clock."""

    tenants: Mapping[str, Tenant]
    #: (since, until, version); they overlap by the time that a change took
    spans: list[tuple[float, float, int]] = field(default_factory=list)

    def change(self, variant: int, asked: float, done: float) -> None:
        """From `asked` on it may be in force, from `done` on it is."""
        if self.spans:
            since, _, before = self.spans[-1]
            self.spans[-1] = (since, done, before)
        self.spans.append((asked, float("inf"), variant))

    def limit(self, tenant: str, kind: str, at: float) -> int | None:
        """The highest that may have been in force then; None: it has no such limit."""
        limits = [
            self.tenants[tenant].limits_in(variant).get(kind)
            for since, until, variant in self.spans
            if since <= at <= until
        ]
        known = [limit for limit in limits if limit is not None]
        return max(known) if known else None


class Reloads:
    def __init__(self, gateway: GatewayProcess, in_force: InForce, history: History, seed: int) -> None:
        self.in_force = in_force
        self._gateway = gateway
        self._history = history
        self._rng = random.Random(seed + 55)
        in_force.change(0, 0.0, 0.0)

    async def run(self, stopping: asyncio.Event) -> None:
        variant = 0
        count = 0
        while await rest(stopping, self._rng.uniform(*PAUSE)):
            count += 1
            if count % 5 == 0:
                await self._break(count // 5)
            else:
                variant += 1
                await self._change(variant)

    async def _change(self, variant: int) -> None:
        gateway, layout = self._gateway, self._gateway.layout
        before = await self._config()
        asked = time.monotonic()
        layout.path.write_text(layout.text(variant))
        how = ("reload: SIGHUP", "reload: POST", "reload: watched")[variant % 3]
        if how == "reload: SIGHUP":
            gateway.hang_up()
        elif how == "reload: POST":
            status, answer = await gateway.post_reload()
            if status != 200 or answer.get("needs_restart"):
                self._history.violations.append(f"POST /reload of a good file: {status} {answer}")

        async def taken_over() -> bool:
            now = await self._config()
            return bool(now["generation"] > before["generation"] and now["error"] is None)

        took = await until(taken_over, TAKEN_OVER)
        done = time.monotonic()
        if took is None:
            self._history.violations.append(f"{how}: version {variant} was not taken over: {await self._config()}")
        # A worker may lag behind the answer by what a line to it takes.
        self.in_force.change(variant, asked, done + 0.5)
        self._history.begin(how, asked, done)

    async def _break(self, number: int) -> None:
        """Afterwards the file stays as it is until the next good one."""
        layout = self._gateway.layout
        before = await self._config()
        layout.path.write_text(layout.broken(number))
        status, answer = await self._gateway.post_reload()
        after = await self._config()
        if status != 400 or after["generation"] != before["generation"] or not after["error"]:
            self._history.violations.append(f"a broken file: {status} {answer}, {before} became {after}")
        self._history.begin("reload: broken", time.monotonic(), time.monotonic())

    async def _config(self) -> dict[str, Any]:
        return dict((await self._gateway.state())["gateway"]["config"])
