"""A backend in memory, for tests: the same life of a replica, no processes. Time passes when the test says so."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from kilocard.backends.base import ReplicaState, ReplicaStatus, Report
from kilocard.backends.gpus import GpuLedger, Inventory
from kilocard.backends.life_events import (
    AnnounceFound,
    AnnounceLeaving,
    AnnounceLost,
    Begin,
    Drain,
    Event,
    Exited,
    Health,
    Idle,
    Kill,
    Probed,
    Spawn,
    Spawned,
    Stop,
    Terminate,
    Tick,
)
from kilocard.backends.lifecycle import Life
from kilocard.backends.roster import Roster, Seat, by_number, no_such
from kilocard.core.clock import ManualClock
from kilocard.core.replica import Endpoint, Found, Leaving, Lost
from kilocard.spec.model import ClusterSpec, PoolSpec


class _Replica:
    def __init__(self, seat: Seat, life: Life) -> None:
        self.seat = seat
        self.life = life
        self.stopped = asyncio.Event()


class FakeBackend:
    """See Backend. Replicas are ready at once unless `auto_ready` is off (then call `make_ready`).

    `calls` lists every call with its arguments; `fail_next` makes the next call of a method raise.
    """

    def __init__(
        self, spec: ClusterSpec, report: Report, *, gpus: Inventory | None = None, auto_ready: bool = True
    ) -> None:
        self.clock = ManualClock()
        self.auto_ready = auto_ready
        self.calls: list[tuple[Any, ...]] = []
        self._errors: dict[str, deque[Exception]] = {}
        self._report = report
        ours = {name: pool for name, pool in spec.pools.items() if not pool.exists}
        self._roster = Roster(
            ours, spec.pools.keys() - ours.keys(), _gpu_count, GpuLedger(gpus or Inventory((), "a fake machine"))
        )
        self._replicas: dict[str, _Replica] = {}

    # ---- what tests do to it

    def fail_next(self, method: str, error: Exception) -> None:
        """The next call of `method` (open, start, scale, drain, idle, stop, close) raises this and does nothing."""
        self._errors.setdefault(method, deque()).append(error)

    def make_ready(self, replica: str) -> None:
        self._tell(replica, Probed(self.clock(), Health.READY))

    def crash(self, replica: str, reason: str) -> None:
        """Its process exits; it starts again when its back-off has passed."""
        self._tell(replica, Exited(self.clock(), reason))

    def advance(self, seconds: float) -> None:
        """Time passes; back-offs, start time-outs and drain graces that end meanwhile do what they do, in order."""
        until = self.clock() + seconds
        while due := [
            (replica.life.deadline, name)
            for name, replica in self._replicas.items()
            if replica.life.deadline is not None and replica.life.deadline <= until
        ]:
            at, name = min(due)
            self.clock.now = max(self.clock.now, at)
            self._tell(name, Tick(self.clock()))
        self.clock.now = until

    # ---- Backend

    def replicas(self) -> tuple[ReplicaStatus, ...]:
        return tuple(self._status(name) for name in sorted(self._replicas, key=by_number))

    def describe(self, replica: str) -> ReplicaStatus:
        self._known(replica)
        return self._status(replica)

    async def open(self) -> None:
        self._called("open")
        self._begin(self._roster.seat({name: pool.replicas.min for name, pool in self._roster.pools.items()}))

    async def start(self, pool: str) -> str:
        self._called("start", pool)
        self._roster.pool(pool)
        [seat] = self._roster.seat({pool: 1})
        self._begin([seat])
        return seat.replica

    async def scale(self, pool: str, count: int) -> None:
        self._called("scale", pool, count)
        missing, surplus = self._roster.change(pool, count, self.replicas())
        self._begin(self._roster.seat({pool: missing}))
        for replica in surplus:
            self._tell(replica, Drain(self.clock(), f"scaled down to {count}"))

    async def drain(self, replica: str, reason: str) -> None:
        self._called("drain", replica, reason)
        known = self._known(replica)
        self._tell(replica, Drain(self.clock(), reason))
        await known.stopped.wait()

    def idle(self, replica: str) -> None:
        self._called("idle", replica)
        if replica in self._replicas:
            self._tell(replica, Idle(self.clock()))

    async def stop(self, replica: str, reason: str) -> None:
        self._called("stop", replica, reason)
        self._known(replica)
        self._tell(replica, Stop(self.clock(), reason))

    async def close(self) -> None:
        self._called("close")
        for name in list(self._replicas):
            self._tell(name, Stop(self.clock(), "kilocard stops"))

    # ---- inside

    def _called(self, method: str, *arguments: Any) -> None:
        self.calls.append((method, *arguments))
        errors = self._errors.get(method)
        if errors:
            raise errors.popleft()

    def _known(self, replica: str) -> _Replica:
        if replica not in self._replicas:
            raise no_such(replica, self._replicas)
        return self._replicas[replica]

    def _begin(self, seats: list[Seat]) -> None:
        for seat in seats:
            pool = self._roster.pools[seat.pool]
            self._replicas[seat.replica] = _Replica(seat, Life(pool.start, pool.drain.grace, self.clock()))
            self._tell(seat.replica, Begin(self.clock()))

    def _tell(self, name: str, event: Event) -> None:
        replica = self._replicas[name]
        for instruction in replica.life.on(event):
            match instruction:
                case Spawn():
                    self._tell(name, Spawned(self.clock()))
                    if self.auto_ready:
                        self.make_ready(name)
                case AnnounceFound():
                    self._report(Found(Endpoint(name, replica.seat.pool, self._url(name))))
                case AnnounceLeaving(reason):
                    self._report(Leaving(name, reason))
                case AnnounceLost(reason):
                    self._report(Lost(name, reason))
                case Terminate() | Kill():
                    self._tell(name, Exited(self.clock(), "told to"))
        if replica.life.state is ReplicaState.STOPPED and not replica.stopped.is_set():
            self._roster.leave(name)
            replica.stopped.set()

    def _url(self, name: str) -> str:
        return f"http://{name}.invalid:8000"

    def _status(self, name: str) -> ReplicaStatus:
        replica, life = self._replicas[name], self._replicas[name].life
        return ReplicaStatus(
            id=name,
            pool=replica.seat.pool,
            state=life.state,
            url=self._url(name),
            gpus=replica.seat.gpus,
            since=life.since,
            reason=life.reason,
            restarts=max(0, life.restarts),
            phases=life.phases,
        )


def _gpu_count(pool: PoolSpec) -> int:
    return 0 if pool.gpus is None else pool.gpus.per_replica
