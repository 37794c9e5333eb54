"""Tells gateways in other processes which replicas there are, and the backend when a leaving one is free."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from kilocard.backends.base import Backend, ReplicaStatus
from kilocard.controller.sources import AdminPages
from kilocard.core.clock import Clock
from kilocard.core.errors import UpstreamError
from kilocard.core.replica import Change, Found, Leaving
from kilocard.core.roll import Roll, RollEntry
from kilocard.net.client import fetch

#: seconds between two tellings while nothing happens, and for one answer
EVERY = 1.0
PATIENCE = 2.0

_JSON = (("content-type", "application/json"),)


class Announcer:
    """`report` is for the backend. `pages` hear what gateways say of their replicas; `scaling` is shown there."""

    def __init__(self, pages: AdminPages, clock: Clock) -> None:
        self._pages = pages
        self._clock = clock
        self._found: dict[str, str] = {}
        self._leaving: set[str] = set()
        #: when every gateway had heard that it leaves
        self._left_at: dict[str, float] = {}
        self._problems: dict[str, str] = {}
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.scaling: Callable[[], dict[str, Any]] = dict

    @property
    def problems(self) -> Sequence[str]:
        return [f"{url}: {why}" for url, why in self._problems.items()]

    def report(self, change: Change) -> None:
        """News of the backend; told at once."""
        replica = change.endpoint.replica if isinstance(change, Found) else change.replica
        self._leaving.discard(replica)
        self._left_at.pop(replica, None)
        if isinstance(change, Found):
            self._found[replica] = change.endpoint.url
        elif isinstance(change, Leaving):
            self._leaving.add(replica)
        else:
            self._found.pop(replica, None)
        self._news.set()

    def start(self, backend: Backend) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(backend), name="announcer")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, backend: Backend) -> None:
        while True:
            await self.tell(backend)
            for replica, since in list(self._left_at.items()):
                if self._pages.drained(replica, since):
                    backend.idle(replica)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(EVERY):
                    await self._news.wait()

    async def tell(self, backend: Backend) -> None:
        """All replicas to all gateways."""
        self._news.clear()
        leaving = set(self._leaving)
        roll = Roll(tuple(self._entry(status) for status in backend.replicas()), self.scaling())
        body = msgspec.json.encode(roll)
        heard = await asyncio.gather(*(self._put(url, body) for url in self._pages.urls))
        if all(heard):
            now = self._clock()
            for replica in leaving & self._leaving:
                self._left_at.setdefault(replica, now)

    def _entry(self, status: ReplicaStatus) -> RollEntry:
        leaves = status.id in self._leaving
        return RollEntry(
            status.id, status.pool, status.state.value, self._found.get(status.id, status.url),
            serves=status.id in self._found and not leaves, leaves=leaves, reason=status.reason,
            restarts=status.restarts,
        )  # fmt: skip

    async def _put(self, url: str, body: bytes) -> bool:
        try:
            answer = await fetch(f"{url}/replicas", method="PUT", headers=_JSON, body=body, timeout=PATIENCE)
            if answer.status != 200:
                said = answer.body[:200].decode("utf-8", "replace")
                raise UpstreamError(f"PUT /replicas is answered {answer.status}: {said}")
        except UpstreamError as error:
            self._problems[url] = error.message
            return False
        self._problems.pop(url, None)
        return True
