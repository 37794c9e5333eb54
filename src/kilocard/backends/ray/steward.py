"""Looks after one replica on the cluster: performs what its Berth wants, and tells it what happens."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, assert_never

from kilocard.backends.base import ACTIVE, ReplicaState, ReplicaStatus, Report
from kilocard.backends.news import news_in_time
from kilocard.backends.ray import link as rays
from kilocard.backends.ray.berth import (
    Adopted,
    Announce,
    Begin,
    Berth,
    Event,
    Heard,
    HostGone,
    Placed,
    Release,
    Reserve,
    StartHost,
    TellHost,
    Tick,
    Waits,
)
from kilocard.backends.ray.link import Link, Place, answer
from kilocard.backends.ray.plan import HostPlan, HostReport
from kilocard.backends.ray.shape import Shape, shape, waiting_for
from kilocard.backends.ray.versions import Versions
from kilocard.core.clock import Clock
from kilocard.core.errors import KilocardError

Todo = Reserve | StartHost | Release
#: states of a host that has heard of its end
ENDING = frozenset({ReplicaState.DRAINING, ReplicaState.STOPPING, ReplicaState.STOPPED})
#: seconds between two looks at a place that is not there yet: at first, and when it takes long
FIRST_LOOK, LAST_LOOK = 0.05, 0.5
#: seconds until an actor that can't be reached is asked again
AWAY_SECONDS = 1.0


class Steward:
    """`adopted`: a place of this replica that was found on the cluster; else a new one is asked for."""

    def __init__(
        self, plan: HostPlan, link: Link, versions: Versions, report: Report, clock: Clock, adopted: Place | None = None
    ) -> None:
        self.plan = plan
        self.berth = Berth(plan.replica, plan.pool.start, clock())
        self.stopped = asyncio.Event()
        #: its host has spoken, or it will not
        self.known = asyncio.Event()
        self._link = link
        self._versions = versions
        self._report = report
        self._clock = clock
        self._place = adopted
        self._shape: Shape | None = None
        self._heard: HostReport | None = None
        self._since = clock()  # when the state that the host tells began
        self._idle = False  # its last request ended after it was asked to end
        self._restarts = 0  # of the engine, on places that it had before
        self._todo: deque[Todo] = deque()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None  # looks for a place, or listens to the host
        self.tell(Begin(clock()) if adopted is None else Adopted(clock()))
        if adopted is not None:
            self._task = asyncio.get_running_loop().create_task(self._listen(adopted))

    def status(self, lines: int = 0) -> ReplicaStatus:
        """What was asked to end does not count as one that the pool has, though its host may not have heard yet."""
        status, ending = self._told(lines), self.berth.ending
        if ending is None or status.state not in ACTIVE:
            return status
        state = ReplicaState.DRAINING if ending.drain else ReplicaState.STOPPING
        return replace(status, state=state, reason=ending.reason)

    def _told(self, lines: int) -> ReplicaStatus:
        berth, heard = self.berth, self._heard
        moves = max(0, berth.moves)
        if not berth.hosted or heard is None:
            return ReplicaStatus(
                id=berth.replica,
                pool=self.plan.pool.name,
                state=berth.state,
                since=berth.since,
                reason=berth.reason,
                restarts=moves + self._restarts,
                log=heard.status.log if heard is not None and lines else (),
                log_file=heard.status.log_file if heard is not None else None,
            )
        status = heard.status
        return replace(
            status,
            pid=None,  # it is one on another machine
            since=self._since,
            restarts=status.restarts + moves + self._restarts,
            log=status.log[-lines:] if lines else (),
        )

    @property
    def node(self) -> str | None:
        """Address of the node that it runs on."""
        return self._heard.node if self.berth.hosted and self._heard is not None else None

    def tell(self, event: Event) -> None:
        """State and news change at once, together; what else is to be done is done by `run`, in order."""
        for instruction in self.berth.on(event):
            if isinstance(instruction, Announce):
                self._report(instruction.change)
            elif isinstance(instruction, TellHost):
                self._end_host(instruction.reason, instruction.drain)
            else:
                self._todo.append(instruction)
        if isinstance(event, Heard | HostGone):
            self.known.set()
        self._wake.set()

    def idle(self) -> None:
        """Tell the host, if there is one: it ignores what does not concern it."""
        self._idle = self.berth.ending is not None
        self._to_host(lambda host: host.idle.remote())

    async def log(self, lines: int) -> tuple[str, ...]:
        """The last lines of the engine's log, now; those that were heard last where its node is gone."""
        if self._place is not None and self._place.actors:
            with contextlib.suppress(Exception):  # whatever Ray says, the older lines are better than none
                return tuple(await answer(self._place.actors[0].log.remote(lines)))
        return self._heard.status.log if self._heard is not None else ()

    async def run(self) -> None:
        """Until the replica has stopped. If it is cancelled, the replica is left alone."""
        try:
            while self._todo or self.berth.state is not ReplicaState.STOPPED:
                if self._todo:
                    await self._perform(self._todo.popleft())
                else:
                    await self._something()
        finally:
            await self._end_task()
            self.stopped.set()

    async def _something(self) -> None:
        if not await news_in_time(self._wake, self.berth.deadline, self._clock):
            self.tell(Tick(self._clock()))

    async def _perform(self, instruction: Todo) -> None:
        match instruction:
            case Reserve():
                await self._start_task(self._find_place())
            case StartHost():
                assert self._place is not None, "a host is started on a place"
                await self._start_task(self._host(self._place))
            case Release():
                await self._end_task()
                if self._place is not None:
                    await self._link.release(self._place)
                    self._place = None
                if self._heard is not None:
                    self._restarts += self._heard.status.restarts
                    self._heard = self._heard._replace(status=replace(self._heard.status, restarts=0))
            case _:  # pragma: no cover
                assert_never(instruction)

    # ---- the place, then the host

    async def _find_place(self) -> None:
        try:
            nodes = [node.room for node in await self._link.nodes()]
            self._shape = shape(self.plan.pool, self.plan.engine, nodes)
            place = self._place = self._link.place(self.plan.replica)
            await self._link.reserve(place, self._shape)
            pause = FIRST_LOOK
            while (progress := await self._link.progress(place)).nodes is None:
                self.tell(Waits(self._clock(), waiting_for(self._shape, nodes, progress.infeasible)))
                await asyncio.sleep(pause)
                pause = min(pause * 1.5, LAST_LOOK)
                nodes = [node.room for node in await self._link.nodes()]
            await self._versions.check(progress.nodes)
        except Exception as error:
            self._failed(error)
            return
        self.tell(Placed(self._clock()))

    async def _host(self, place: Place) -> None:
        assert self._shape is not None, "a place has a shape"
        try:
            await self._link.start_host(place, replace(self.plan, parts=len(self._shape.bundles)), self._shape)
        except Exception as error:
            self._failed(error)
            return
        await self._listen(place)

    async def _listen(self, place: Place) -> None:
        """Until the host or one of its parts is gone."""
        ends = [asyncio.ensure_future(answer(part.here.remote())) for part in place.actors[1:]]
        ends.append(asyncio.ensure_future(self._watch(place)))
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            done = next(end for end in ends if end.done())
            error = done.exception()
            self._failed(error if error is not None else RuntimeError("its host ended"))
        finally:
            for end in ends:
                end.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await end

    async def _watch(self, place: Place) -> None:
        seen = -1
        while True:
            try:
                heard: HostReport = await answer(place.actors[0].watch.remote(seen))
            except Exception as error:
                if not rays.is_away(error):
                    raise
                await asyncio.sleep(AWAY_SECONDS)
                continue
            if self._heard is None or self._heard.status.state is not heard.status.state or seen < 0:
                self._since = self._clock() - heard.age
            self._heard, seen = heard, heard.number
            self.tell(Heard(self._clock(), heard.status.state, heard.news))
            self._remind(heard.status.state)

    def _remind(self, state: ReplicaState) -> None:
        """What the host was told before it was there, or out of order, it is told again; twice does no harm."""
        ending = self.berth.ending
        if ending is None:
            return
        if state not in ENDING or (state is ReplicaState.DRAINING and not ending.drain):
            self._end_host(ending.reason, ending.drain)
        elif state is ReplicaState.DRAINING and self._idle:
            self._to_host(lambda host: host.idle.remote())

    def _end_host(self, reason: str, drain: bool) -> None:
        self._to_host(lambda host: host.end.remote(reason, drain))

    def _to_host(self, word: Callable[[Any], object]) -> None:
        """Where it does not arrive, whoever listens to the host learns why."""
        if self._place is not None and self._place.actors:
            word(self._place.actors[0])

    def _failed(self, error: BaseException) -> None:
        if isinstance(error, KilocardError):
            reason = str(error)
        elif rays.is_rays(error):
            reason = rays.why(error)
        else:
            reason = f"{type(error).__name__}: {rays.first_line(error)}"
        self.tell(HostGone(self._clock(), reason))

    async def _start_task(self, what: Coroutine[Any, Any, None]) -> None:
        await self._end_task()
        self._task = asyncio.get_running_loop().create_task(what)

    async def _end_task(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
