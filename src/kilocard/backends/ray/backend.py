"""Replicas on a Ray cluster. See Backend; what waits for room is pending, and no GpuShortage is raised."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable

from kilocard.backends.as_started import as_started
from kilocard.backends.base import ACTIVE, ReplicaStatus, Report
from kilocard.backends.gpus import GpuLedger, Inventory
from kilocard.backends.ray.berth import End
from kilocard.backends.ray.link import Link, Place
from kilocard.backends.ray.plan import HostPlan
from kilocard.backends.ray.shape import places_itself
from kilocard.backends.ray.steward import Steward
from kilocard.backends.ray.versions import Versions
from kilocard.backends.roster import Roster, by_number, no_such
from kilocard.backends.runner import STATUS_LINES
from kilocard.core.clock import Clock
from kilocard.core.errors import BackendError
from kilocard.core.replica import Change
from kilocard.engines.base import Engine, Placement
from kilocard.spec.model import ClusterSpec, PoolSpec
from kilocard.spec.served import served_names

logger = logging.getLogger(__name__)


def _nobody(change: Change) -> None:
    """Nobody routes to a pool that is in no cluster file."""


class RayBackend:
    """`address` and `namespace`: instead of those of the cluster file.

    `detached`: replicas live on without us; `open` finds those again that run under this `namespace`. Else they end
    when this process does, however it ends. `report` is called in the event loop's thread.
    """

    def __init__(
        self,
        spec: ClusterSpec,
        report: Report,
        engines: Callable[[str], Engine],
        *,
        address: str | None = None,
        namespace: str | None = None,
        detached: bool = True,
        clock: Clock = time.monotonic,
    ) -> None:
        self._report = report
        self._clock = clock
        self._detached = detached
        self._link = Link(address or spec.ray.address, namespace or spec.ray.namespace, detached)
        self._engine_named = engines
        self._engines = {name: engines(pool.engine) for name, pool in spec.pools.items()}
        ours = {name: pool for name, pool in spec.pools.items() if self._starts(pool)}
        # Ray counts GPUs; nothing is taken from this ledger
        ledger = GpuLedger(Inventory((), "Ray places replicas"))
        self._roster = Roster(ours, spec.pools.keys() - ours.keys(), lambda pool: 0, ledger)
        #: our pools as the file had them when they began, and the model names that their replicas were told
        self._started = dict(ours)
        self._served = {name: served_names(spec, name) for name in ours}
        self._versions = Versions(self._link, lambda: self._roster.pools, lambda pool: self._engines[pool.name])
        self._stewards: dict[str, Steward] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    # ---- describe

    def replicas(self) -> tuple[ReplicaStatus, ...]:
        return tuple(self._stewards[name].status() for name in sorted(self._stewards, key=by_number))

    def describe(self, replica: str) -> ReplicaStatus:
        """Its log lines are as old as the latest news of it, at most 10 s; see log."""
        return self._steward(replica).status(STATUS_LINES)

    async def log(self, replica: str, lines: int = 400) -> tuple[str, ...]:
        """The end of the engine's log, fetched from the replica's node."""
        return await self._steward(replica).log(lines)

    def node(self, replica: str) -> str | None:
        """Address of the node that it runs on; None: none yet."""
        return self._steward(replica).node

    # ---- start

    async def open(self) -> None:
        """Finds what runs, then starts what is missing. Raises BackendError, EngineError before anything is started.

        Versions of all nodes are compared first, unless something runs already: then they are when the next is started.
        """
        pools = self._roster.pools
        for name in pools:
            self._check(name)
        await self._link.open()
        try:
            found = await self._link.find()
            if not found:
                await self._versions.check()
        except BaseException:
            await self._link.close()
            raise
        for replica, place in found.items():
            await self._adopt(replica, place)
        await asyncio.gather(*(steward.known.wait() for steward in self._stewards.values()))
        have = Counter(status.pool for status in self.replicas() if status.state in ACTIVE)
        self._begin({name: max(0, pool.replicas.min - have[name]) for name, pool in pools.items()})

    async def _adopt(self, replica: str, place: Place) -> None:
        try:
            plan = await self._link.plan_of(place)
        except BackendError as error:
            logger.warning("%s did not answer and is removed: %s", replica, error)
            await self._link.release(place)
            return
        name = plan.pool.name
        ours = name in self._roster.pools
        report = self._report if ours else _nobody
        plan = self._plan(replica, name) if ours else plan
        self._roster.occupy(replica)
        self._keep(Steward(plan, self._link, self._versions, report, self._clock, place))
        if not ours:
            self._stewards[replica].tell(End(self._clock(), "its pool is no longer in the cluster file", True))

    async def start(self, pool: str) -> str:
        self._roster.pool(pool)
        [replica] = self._begin({pool: 1})
        return replica

    async def scale(self, pool: str, count: int) -> None:
        missing, surplus = self._roster.change(pool, count, self.replicas())
        self._begin({pool: missing})
        for replica in surplus:
            self._stewards[replica].tell(End(self._clock(), f"scaled down to {count}", True))

    def _check(self, name: str) -> None:
        """Arguments that no engine would take are an error now, not a crash loop later."""
        self._engines[name].launch(self._roster.pools[name], Placement("127.0.0.1", 1), self._served[name])

    # ---- another cluster file

    def as_started(self, spec: ClusterSpec) -> tuple[ClusterSpec, list[str]]:
        """See as_started: what `change` is to be given, and what waits for a restart."""
        return as_started(spec, self._started, self._served)

    async def change(self, spec: ClusterSpec, take_over: Callable[[], None]) -> None:
        """As LocalBackend.change. Replicas that find no room are pending, so only an EngineError comes before
        `take_over`, with nothing changed."""
        engines, roster, statuses = dict(self._engines), self._roster, self.replicas()
        self._engines.update((name, self._engine_named(pool.engine)) for name, pool in spec.pools.items())
        ours = {name: pool for name, pool in spec.pools.items() if self._starts(pool)}
        before = dict(roster.pools)
        new = ours.keys() - before.keys()
        self._served.update((name, served_names(spec, name)) for name in new)
        roster.pools.clear()
        roster.pools.update(ours)
        try:
            for name in new:
                self._check(name)
        except BaseException:
            roster.pools.clear()
            roster.pools.update(before)
            self._engines = engines
            raise
        roster.not_ours = frozenset(spec.pools.keys() - ours.keys())
        self._started = {name: self._started.get(name, pool) for name, pool in ours.items()}
        missing: dict[str, int] = {}
        surplus = [status.id for status in statuses if status.pool in before.keys() - ours.keys()]
        for name, pool in ours.items():
            count = sum(status.pool == name and status.state in ACTIVE for status in statuses)
            if name in new or before[name].replicas != pool.replicas:
                count = pool.replicas.min
            missing[name], too_many = roster.change(name, count, statuses)
            surplus += too_many
        take_over()
        self._begin(missing)
        for replica in surplus:
            self._stewards[replica].tell(End(self._clock(), "the cluster file wants fewer replicas", True))

    def _begin(self, wanted: dict[str, int]) -> list[str]:
        seats = self._roster.seat(wanted)
        for seat in seats:
            plan = self._plan(seat.replica, seat.pool)
            self._keep(Steward(plan, self._link, self._versions, self._report, self._clock))
        return [seat.replica for seat in seats]

    def _keep(self, steward: Steward) -> None:
        self._stewards[steward.plan.replica] = steward
        self._tasks[steward.plan.replica] = asyncio.get_running_loop().create_task(self._run(steward))

    async def _run(self, steward: Steward) -> None:
        try:
            await steward.run()
        finally:
            self._roster.leave(steward.plan.replica)

    def _plan(self, replica: str, name: str) -> HostPlan:
        pool, engine = self._roster.pools[name], self._engines[name]
        over_ray = places_itself(pool, engine)
        return HostPlan(replica, pool, engine, self._served[name], self._link.namespace, over_ray)

    # ---- stop

    async def drain(self, replica: str, reason: str) -> None:
        steward = self._steward(replica)
        steward.tell(End(self._clock(), reason, True))
        await steward.stopped.wait()

    def idle(self, replica: str) -> None:
        if replica in self._stewards:
            self._stewards[replica].idle()

    async def stop(self, replica: str, reason: str) -> None:
        steward = self._steward(replica)
        steward.tell(End(self._clock(), reason, False))
        await steward.stopped.wait()

    async def close(self) -> None:
        """Also lets go of the cluster: nothing more can be started."""
        for steward in self._stewards.values():
            steward.tell(End(self._clock(), "kilocard stops", False))
        await asyncio.gather(*self._tasks.values())
        await self._link.close()

    async def let_go(self) -> None:
        """End without stopping anything: the next controller finds all replicas again (`detached`)."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        await self._link.close()

    # ---- look-up

    def _starts(self, pool: PoolSpec) -> bool:
        return not pool.exists and self._engines[pool.name].capabilities.launchable

    def _steward(self, replica: str) -> Steward:
        if replica not in self._stewards:
            raise no_such(replica, self._stewards)
        return self._stewards[replica]
