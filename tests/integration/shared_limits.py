"""Several gateways' limits over one Redis, in the test's own event loop."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from kilocard.spec.model import TenantLimits
from kilocard.stores.redis_limits import RedisLimits
from kilocard.tenancy.limits import Ask, Denied, Grant, Scope, Used
from redis_server import RedisServer

#: noon of this day, and what the monotonic clock said
_NOON = time.time() // 86_400 * 86_400 + 43_200.0  # noqa: TID251  # budgets go by the calendar
_BEGAN = time.monotonic()


def noon() -> float:
    """What gateways take for the time, so that no day or month ends in the middle of a test."""
    return _NOON + time.monotonic() - _BEGAN


def scope(tenant: str = "t", **limits: int) -> Scope:
    return Scope(tenant, "", TenantLimits(**limits))


class Fleet:
    """Gateways that share limits, and what each was told."""

    def __init__(
        self, server: RedisServer, count: int, silent: float, patience: float, wall: Callable[[], float] = noon
    ) -> None:
        self.server = server
        self._wall = wall
        self._parts = (silent, patience)
        self.all = [self.new() for _ in range(count)]
        self.grants: list[tuple[RedisLimits, Grant]] = []
        self.denials: list[Denied] = []
        #: seconds that each answer took
        self.waits: list[float] = []

    def new(self) -> RedisLimits:
        silent, patience = self._parts
        return RedisLimits(self.server.url, silent=silent, patience=patience, wall=self._wall)

    def ask(self, gateway: RedisLimits, scope: Scope, prompt: int = 10, output: int = 0) -> None:
        asked = time.monotonic()

        def done(answer: Grant | Denied) -> None:
            self.waits.append(time.monotonic() - asked)
            if isinstance(answer, Grant):
                self.grants.append((gateway, answer))
            else:
                self.denials.append(answer)

        gateway.reserve(Ask((scope,), prompt, output, True, self._wall(), 60.0), asked, done)

    @property
    def answers(self) -> int:
        return len(self.grants) + len(self.denials)

    async def answered(self, count: int) -> None:
        await self.until(lambda: self.answers >= count)
        assert self.answers == count

    async def burst(self, scope: Scope, count: int, prompt: int = 10) -> int:
        """`count` requests at once, spread over all; how many passed."""
        before, answers = len(self.grants), self.answers
        for number in range(count):
            self.ask(self.all[number % len(self.all)], scope, prompt)
        await self.answered(answers + count)
        return len(self.grants) - before

    async def pour(self, scope: Scope, count: int, seconds: float, prompt: int = 10) -> None:
        """`count` requests over this time."""
        answers = self.answers
        for number in range(count):
            self.ask(self.all[number % len(self.all)], scope, prompt)
            await asyncio.sleep(seconds / count)
        await self.answered(answers + count)

    def settle(self, used: int | None = 10) -> None:
        """All that run, twice."""
        for gateway, grant in self.grants:
            gateway.settle(grant, used, time.monotonic())
            gateway.settle(grant, used, time.monotonic())

    def used(self, scope: Scope, gateway: int = 0) -> Used:
        return self.all[gateway].used(scope, time.monotonic(), self._wall())

    async def until(self, what: Callable[[], Any], seconds: float = 40.0) -> None:
        async with asyncio.timeout(seconds):
            while not what():
                await asyncio.sleep(0.01)

    async def shared(self) -> None:
        """All count in Redis."""
        await self.until(lambda: all(gateway.status().up for gateway in self.all))
        await self.until(lambda: all(gateway.status().gateways == len(self.all) for gateway in self.all))

    async def away(self) -> None:
        await self.until(lambda: not any(gateway.status().up for gateway in self.all))

    def kept(self, scope: Scope) -> dict[str, int]:
        """What Redis has of this scope."""
        found = self.server.call("HMGET", f"{{kilocard}}:a:{scope.tenant}\0{scope.model}", "R", "T", "c")
        assert isinstance(found, list)
        return {name: int(value or 0) for name, value in zip(("R", "T", "c"), found, strict=True)}  # type: ignore[arg-type]


@contextlib.asynccontextmanager
async def fleet(
    server: RedisServer, count: int = 3, silent: float = 1.0, patience: float = 1.0
) -> AsyncIterator[Fleet]:
    """`patience` is long where a test is not about it: this machine may be busy."""
    fleet = Fleet(server, count, silent, patience)
    for gateway in fleet.all:
        await gateway.start()
    if count:
        await fleet.shared()
    try:
        yield fleet
    finally:
        for gateway in fleet.all:
            await gateway.close()
