"""Replicas that were chosen to go: out of the routing first, then their requests end, then they stop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from kilocard.backends.base import Backend
from kilocard.controller.events import Events, Kind
from kilocard.controller.memory import DrainUnderWay

#: seconds until a drain that the backend refused is asked for again: the first time, and at most
AGAIN_S, AGAIN_MOST_S = 1.0, 30.0


class Departures:
    """The backend drains: it has the replica leave the routing, waits for its requests within the pool's grace, and
    stops it. `remember` writes down what is under way."""

    def __init__(self, backend: Backend, events: Events, remember: Callable[[], Awaitable[None]]) -> None:
        self._backend = backend
        self._events = events
        self._remember = remember
        self._tasks: dict[str, asyncio.Task[None]] = {}
        #: not gone yet
        self.under_way: dict[str, DrainUnderWay] = {}

    async def begin(self, drains: Mapping[str, DrainUnderWay]) -> None:
        """They leave. It is written down before it is done: who comes after us must know."""
        self.under_way.update(drains)
        await self._remember()
        for replica, drain in drains.items():
            self._events.say(Kind.DRAINING, drain.reason, drain.pool, replica)
            self._watch(replica, drain)

    def resume(self, drains: Mapping[str, DrainUnderWay]) -> None:
        """An earlier controller has begun this. Draining what drains already is harmless."""
        there = {status.id for status in self._backend.replicas()}
        for replica, drain in drains.items():
            if replica in there:
                self.under_way[replica] = drain
                self._events.say(Kind.RESUMED, drain.reason, drain.pool, replica)
                self._watch(replica, drain)

    async def leave_alone(self) -> None:
        """Watch none of them any more: what was begun is the backend's to finish, or the next controller's."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks.clear()

    def _watch(self, replica: str, drain: DrainUnderWay) -> None:
        task = asyncio.get_running_loop().create_task(self._until_gone(replica, drain), name=f"drain {replica}")
        self._tasks[replica] = task

    async def _until_gone(self, replica: str, drain: DrainUnderWay) -> None:
        pause = AGAIN_S
        while any(status.id == replica for status in self._backend.replicas()):
            try:
                await self._backend.drain(replica, drain.reason)
                break
            except Exception as error:  # it must leave all the same
                self._events.trouble("drain", error, drain.pool)
            await asyncio.sleep(pause)
            pause = min(AGAIN_MOST_S, pause * 2)
        self.under_way.pop(replica, None)
        self._tasks.pop(replica, None)
        self._events.say(Kind.GONE, "", drain.pool, replica)
        await self._remember()
