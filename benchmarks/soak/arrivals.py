"""Requests at a rate, whoever still waits: what a crowd of users is like that knows nothing of each other."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping

from benchmarks.soak.cast import Tenant
from benchmarks.soak.clients import Client

#: more requests at once are not sent: this process would measure itself
MOST = 4000


class Arrivals:
    """`rate`: requests a second on average, at random moments."""

    def __init__(
        self, rate: float, tenants: Mapping[str, Tenant], seed: int, client: Callable[[int, Tenant], Client]
    ) -> None:
        self.sent = 0
        #: that were not sent, since MOST were under way
        self.kept_back = 0
        self._rate = rate
        self._rng = random.Random(seed + 11)
        self._tenants = [tenant for tenant in tenants.values() if tenant.clients]
        self._shares = [tenant.clients for tenant in self._tenants]
        self._client = client
        self._idle: dict[str, list[Client]] = {tenant.name: [] for tenant in self._tenants}
        self._number = 500_000
        self._running: set[asyncio.Task[None]] = set()

    async def run(self, stopping: asyncio.Event) -> None:
        at = time.monotonic()
        while not stopping.is_set():
            at += self._rng.expovariate(self._rate)
            wait = at - time.monotonic()
            if wait > 0.0:
                await asyncio.sleep(wait)
            if len(self._running) >= MOST:
                self.kept_back += 1
                continue
            self.sent += 1
            task = asyncio.create_task(self._one(self._rng.choices(self._tenants, self._shares)[0]))
            self._running.add(task)
            task.add_done_callback(self._ended)
        await asyncio.gather(*self._running)
        for clients in self._idle.values():
            for client in clients:
                client.close()

    async def _one(self, tenant: Tenant) -> None:
        """The client that asked last asks again: few connections stay open."""
        idle = self._idle[tenant.name]
        if idle:
            client = idle.pop()
        else:
            self._number += 1
            client = self._client(self._number, tenant)
        await client.short()
        if self._rng.random() < 0.02:
            client.close()
        idle.append(client)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        task.result()  # a client that broke is an error of the checker
