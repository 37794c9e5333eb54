"""A Ray backend under test and what it told."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fake_engine import FakeEngine, is_alive
from kilocard.backends.base import ReplicaState
from kilocard.core.replica import Change, Found
from kilocard.spec.model import ClusterSpec

S = ReplicaState


class Fleet:
    def __init__(self, nodes: Any, spec: ClusterSpec, **options: Any) -> None:
        engine = options.pop("engine", FakeEngine())
        from kilocard.backends.ray.backend import RayBackend

        self.news: list[Change] = []
        self.seen: list[tuple[str, str]] = []
        self.backend = RayBackend(spec, self.news.append, lambda name: engine, address=nodes.address, **options)

    def states(self) -> dict[str, S]:
        states = {status.id: status.state for status in self.backend.replicas()}
        self.seen += [one for one in states.items() if one not in self.seen]
        return states

    def kinds(self, replica: str = "p-0") -> list[str]:
        return [
            type(change).__name__
            for change in self.news
            if (change.endpoint.replica if isinstance(change, Found) else change.replica) == replica
        ]

    async def until(self, what: Callable[[], bool], seconds: float = 150.0) -> None:
        end = time.monotonic() + seconds
        while not what():
            statuses = [self.backend.describe(status.id) for status in self.backend.replicas()]
            assert time.monotonic() < end, (self.news, statuses)
            await asyncio.sleep(0.02)

    async def until_ready(self, *replicas: str) -> None:
        await self.until(lambda: all(self.states().get(name) is S.READY for name in replicas))


@asynccontextmanager
async def running(nodes: Any, spec: ClusterSpec, **options: Any) -> Any:
    fleet = Fleet(nodes, spec, **options)
    await fleet.backend.open()
    try:
        yield fleet
    finally:
        await fleet.backend.close()
    assert set(fleet.states().values()) <= {S.STOPPED}


def run(test: Callable[[], Awaitable[None]], seconds: float = 380.0) -> None:
    asyncio.run(asyncio.wait_for(test(), seconds))  # type: ignore[arg-type]  # an async function's call is a coroutine


def family_of(file: Path) -> list[int]:
    """Engine, its child, and its grandchild in a session of its own."""
    pids: list[int] = json.loads(file.read_text())
    return pids


async def all_gone(pids: list[int], seconds: float = 5.0) -> None:
    end = time.monotonic() + seconds
    while left := [pid for pid in pids if is_alive(pid)]:
        assert time.monotonic() < end, left
        await asyncio.sleep(0.02)
