"""Observe, decide, act, record: once a second, and no error ends it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable

from kilocard.backends.base import Backend
from kilocard.controller.departures import Departures
from kilocard.controller.events import Events, Kind, words
from kilocard.controller.keeper import Keeper, Pending
from kilocard.controller.lease import Holder, Lease
from kilocard.controller.local_time import local_times
from kilocard.controller.memory import DrainUnderWay, Memory, MemoryFile
from kilocard.controller.phases import listed
from kilocard.controller.sources import Source
from kilocard.core.clock import Clock
from kilocard.core.errors import GpuShortage
from kilocard.core.reading import GatewayReading, observed
from kilocard.core.signals import ClusterSignals, Phase, ReplicaSignals
from kilocard.scaling.decision import ScalingDecision
from kilocard.scaling.leaving import leaving
from kilocard.scaling.limits import Limits
from kilocard.spec.model import ClusterSpec, PoolSpec

#: seconds between two looks, and the least pause between them when a request wakes a pool
EVERY = 1.0
LEAST = 0.2
#: timers are written so often; what is under way is written at once
REMEMBER_EVERY = 5.0
#: a backend may take so long to say that a replica is on its way
START_PATIENCE = 30.0


def _is_kept(pool: PoolSpec) -> bool:
    """Replicas that exist already are nobody's to start or stop."""
    return pool.scaling is not None and not pool.endpoints and pool.dns is None


def wall_clock() -> float:
    """Seconds since 1970."""
    return time.time()  # noqa: TID251  # what is written has to mean something to another process


class Controller:
    """Keeps the number of replicas of each pool that has `scaling`. Nobody else changes it while this one leads.

    `clock` is the backend's, so that ages of states can be told. `gpus`: of one replica of a pool, where the cluster
    file does not say it. `outlives`: replicas outlive this process, so drains
    that an earlier controller has begun are picked up.
    """

    def __init__(
        self,
        spec: ClusterSpec,
        backend: Backend,
        source: Source,
        lease: Lease,
        memory: MemoryFile,
        *,
        gpus: Callable[[PoolSpec], int | None] = lambda pool: None,
        outlives: bool = True,
        clock: Clock = time.monotonic,
        wall: Callable[[], float] = wall_clock,
    ) -> None:
        self.backend = backend
        self.source = source
        self.clock = clock
        self.wall = wall
        self.events = Events(clock)
        self.departures = Departures(backend, self.events, self._remember)
        self.keepers: dict[str, Keeper] = {}
        #: None: not known yet
        self.leads: bool | None = None
        self.leader: Holder | None = None
        #: looks that came to their end, and when the last one did
        self.looks = 0
        self.looked_at: float | None = None
        #: replicas that were started and drained, by pool and "up" or "down"
        self.moves: Counter[tuple[str, str]] = Counter()
        #: decisions by pool and reason
        self.decided: Counter[tuple[str, str]] = Counter()
        self._gpus = gpus
        self._lease = lease
        self._memory = memory
        self._outlives = outlives
        self._writing = asyncio.Lock()
        self._written_at: float | None = None
        self._arriving: set[str] = set()
        self._task: asyncio.Task[None] | None = None
        self._soon = asyncio.Event()
        self.adopt(spec)

    # ---- life

    def adopt(self, spec: ClusterSpec) -> None:
        """Another cluster file is in force. Counts follow at the next look."""
        now, scrape_s = self.clock(), spec.gateway.scrape_interval
        pools = {name: pool for name, pool in spec.pools.items() if _is_kept(pool)}
        for name in self.keepers.keys() - pools.keys():
            del self.keepers[name]
        for name, pool in pools.items():
            gpus = self._gpus(pool)
            if name in self.keepers:
                self.keepers[name].adopt(pool, scrape_s, gpus, now)
            else:
                self.keepers[name] = Keeper(pool, scrape_s, gpus)

    def start(self) -> None:
        """Begin, in the running event loop."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="controller")

    def wake(self) -> None:
        """A request waits and there is no replica: if that is as it was decided, decide anew at once."""
        if any(keeper.decision is not None and not keeper.decision.wanted for keeper in self.keepers.values()):
            self._soon.set()

    async def close(self, *, finished: bool = False) -> None:
        """Decide no more; the lease stays ours until `release`.

        `finished`: the backend ends with us, so there is nothing to pick up.
        """
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self.departures.leave_alone()
        if self.leads:
            await (asyncio.to_thread(self._memory.forget) if finished else self._remember())

    async def release(self) -> None:
        """Others may lead: nothing of ours runs any more that they could start a second time."""
        self.leads = None
        await asyncio.to_thread(self._lease.give_back)

    async def _run(self) -> None:
        while True:
            began = self.clock()
            self._soon.clear()
            await self.look()
            await asyncio.sleep(LEAST)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, EVERY - (self.clock() - began))):
                    await self._soon.wait()

    async def look(self) -> None:
        """One round. Whatever goes wrong is counted and kept; it raises nothing but its own end."""
        try:
            if not self.keepers and self.leads is None:
                return  # nothing to keep: nobody need know of us
            if not await self._take_the_lead():
                return
            signals = await self._observe()
            for keeper in list(self.keepers.values()):
                try:
                    await self._keep(keeper, signals)
                except Exception as error:  # one pool's trouble is not the others'
                    self.events.trouble("decide", error, keeper.pool.name)
            if self._written_at is None or self.clock() - self._written_at >= REMEMBER_EVERY:
                await self._remember()
            self.looks += 1
            self.looked_at = self.clock()
        except Exception as error:
            self.events.trouble("look", error)

    # ---- the lease

    async def _take_the_lead(self) -> bool:
        led = self.leads
        try:
            self.leads = await asyncio.to_thread(self._lease.take, self.wall())
            self.leader = await asyncio.to_thread(self._lease.holder)
        except OSError as error:
            self.events.trouble("lease", error)
            self.leads = False  # who can't know must not act
        if self.leads and not led:
            self.events.say(Kind.LEADS, "this controller decides from now on")
            memory = await self._recall()
            away = max(0.0, self.wall() - memory.saved_at)
            for name, saved in memory.scalers.items():
                if name in self.keepers:
                    self.keepers[name].restore(self.clock(), saved, away)
            if self._outlives:
                self.departures.resume(memory.drains)
        elif not self.leads and led is not False:
            self.events.say(Kind.STANDBY, "another controller leads" if self.leader is None else str(self.leader))
            await self.departures.leave_alone()
            self.departures.under_way.clear()
            for keeper in self.keepers.values():
                keeper.pending.clear()
        return self.leads

    # ---- observe

    async def _observe(self) -> ClusterSignals:
        try:
            reading = await self.source.read()
        except Exception as error:  # nothing is known then, and what is not known removes nothing
            self.events.trouble("observe", error)
            reading = GatewayReading()
        now, leave = self.clock(), self.departures.under_way
        rows = (listed(status, now, leaves=status.id in leave) for status in self.backend.replicas())
        signals = observed(now, reading, [row for row in rows if row is not None])
        there = {replica.id: replica for replica in signals.replicas}
        for id in list(self._arriving):
            replica = there.get(id)
            if replica is not None and replica.phase is Phase.READY:
                self.events.say(Kind.READY, "", replica.pool, id)
            if replica is None or replica.phase in (Phase.READY, Phase.DRAINING):
                self._arriving.discard(id)
        return signals

    # ---- decide and act

    async def _keep(self, keeper: Keeper, signals: ClusterSignals) -> None:
        times, unknown = local_times(keeper.scaler.zones, self.wall())
        for error in unknown:  # its schedules don't hold; the rest of the pool goes on
            self.events.trouble("decide", error, keeper.pool.name)
        decision = keeper.decide(signals, Limits(local=times))
        self.decided[decision.pool, decision.reason.value] += 1
        for _ in range(decision.wanted - decision.have):
            keeper.wish(signals.now)
        if decision.wanted < decision.have:
            await self._fewer(keeper, decision, signals)
        due = [pending for pending in keeper.pending.values() if signals.now >= pending.due]
        await asyncio.gather(*(self._start(keeper, pending, decision) for pending in due))

    async def _start(self, keeper: Keeper, pending: Pending, decision: ScalingDecision) -> None:
        pool, now = keeper.pool.name, self.clock()
        try:
            async with asyncio.timeout(START_PATIENCE):
                replica = await self.backend.start(pool)
        except GpuShortage as error:
            if not pending.shortage:
                self.events.say(Kind.PENDING, error.message, pool)
            pending.failed(now, error.message, shortage=True)
        except Exception as error:  # it stays wanted
            self.events.trouble("start", error, pool)
            pending.failed(now, words(error), shortage=False)
        else:
            del keeper.pending[pending.id]
            self._arriving.add(replica)
            self.moves[pool, "up"] += 1
            self.events.say(Kind.STARTED, decision.sentence, pool, replica)

    async def _fewer(self, keeper: Keeper, decision: ScalingDecision, signals: ClusterSignals) -> None:
        pool, since = decision.pool, self.wall()
        wished = [ReplicaSignals(id, pool, Phase.PENDING) for id in keeper.pending]
        drains = {}
        for leaver in leaving([*signals.of(pool)[1], *wished], decision.have - decision.wanted):
            if keeper.pending.pop(leaver.replica, None) is None:
                drains[leaver.replica] = DrainUnderWay(pool, f"{decision.sentence}; {leaver.reason}", since)
        self.moves[pool, "down"] += len(drains)
        if drains:
            await self.departures.begin(drains)

    # ---- record

    async def _recall(self) -> Memory:
        try:
            return await asyncio.to_thread(self._memory.read)
        except OSError as error:  # it leads all the same, as one that was never here
            self.events.trouble("record", error)
            return Memory()

    async def _remember(self) -> None:
        async with self._writing:
            at = self.clock()
            scalers = {name: keeper.scaler.snapshot(at) for name, keeper in self.keepers.items()}
            memory = Memory(self.wall(), dict(self.departures.under_way), scalers)
            try:
                await asyncio.to_thread(self._memory.write, memory)
                self._written_at = at
            except OSError as error:
                self.events.trouble("record", error)
