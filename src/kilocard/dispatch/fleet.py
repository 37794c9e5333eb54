"""Replicas: who is a member of a pool, and who may take a request now."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from kilocard.core.load import LoadSample
from kilocard.dispatch.config import PROBE_TIMEOUT, PoolFacts
from kilocard.dispatch.events import HANGS, UNPROCESSED, Fault
from kilocard.dispatch.health import OPEN, OUT, TRANSITIONS, Signal, State, may_be_out
from kilocard.dispatch.layout import lay_out
from kilocard.dispatch.overheat import judge, set_thresholds
from kilocard.dispatch.replica import Replica
from kilocard.dispatch.slow_start import allowance
from kilocard.dispatch.stats import Stats
from kilocard.dispatch.topology import Model, Pool
from kilocard.routing.load import UNBOUNDED
from kilocard.spec.model import ModelSpec

#: a failing replica that has to stay in looks this many requests busier per failure, up to a bound, for some seconds
HANDICAP, HANDICAP_MAX, HANDICAP_SECONDS = 2.0, 16.0, 5.0


class Fleet:
    def __init__(
        self,
        models: Mapping[str, ModelSpec],
        pools: Mapping[str, PoolFacts],
        rng: Random,
        scrape_interval: float,
        stats: Stats,
    ) -> None:
        self._rng = rng
        self._interval = scrape_interval
        self._stats = stats
        self.pools: dict[str, Pool] = {}
        #: by name, for everybody who has no pools of its own there; `private`: for (name, tenant) that has
        self.models: dict[str, Model] = {}
        self.private: dict[tuple[str, str], Model] = {}
        #: all of both, each once: each has held requests of its own
        self.queues: list[Model] = []
        self.replicas: dict[str, Replica] = {}
        lay_out(self, models, pools, rng)

    def change(
        self, now: float, models: Mapping[str, ModelSpec], pools: Mapping[str, PoolFacts], scrape_interval: float
    ) -> list[str]:
        """The cluster file has changed. Replicas stay as they are, under the new bounds; those of pools that are no
        more drain. Returns those among them that have no request left."""
        gone = lay_out(self, models, pools, self._rng)
        self._interval = scrape_interval
        idle = []
        for pool in gone:
            for replica in list(pool.replicas.values()):
                self.drain(now, replica.id)
                if not replica.in_flight:
                    idle.append(replica.id)
        for pool in self.pools.values():
            for replica in pool.replicas.values():
                replica.interval = scrape_interval
                replica.runs_at_once(pool.facts.max_running)
                set_thresholds(replica, pool.spec.overheat)
                self.relist(now, replica)
            self._keep_floor(now, pool)
        return idle

    # --- membership

    def up(self, now: float, id: str, pool_name: str) -> Replica | None:
        """The replica can serve. None: nothing new, or its pool is not ours."""
        pool = self.pools.get(pool_name)
        if pool is None:
            self._stats.late_events += 1
            return None
        known = self.replicas.get(id)
        if known is not None:
            if known.pool is pool:
                return self._back(now, known)
            self.gone(now, id)
        replica = Replica(id, pool, now, self._interval)
        spec = pool.spec
        set_thresholds(replica, spec.overheat)
        if pool.members == pool.out:
            # the first of a cold pool: nobody else could take its share
            pool.warm_at = now + spec.slow_start
        elif now >= pool.warm_at and spec.slow_start > 0:
            replica.ramp_from = now
        self.replicas[id] = pool.replicas[id] = replica
        pool.members += 1
        self.relist(now, replica)
        return replica

    def _back(self, now: float, replica: Replica) -> Replica | None:
        """It was to leave and stays: same life, same counts."""
        if not replica.draining:
            return None
        pool, state = replica.pool, replica.health.state
        replica.draining = False
        pool.members += 1
        pool.out += state is not State.READY
        pool.ejected += state in OUT
        self.relist(now, replica)
        self._keep_floor(now, pool)
        return replica

    def drain(self, now: float, id: str) -> Replica | None:
        replica = self.replicas.get(id)
        if replica is None:
            self._stats.late_events += 1
            return None
        if not replica.draining:
            self._leave(replica)
            replica.draining = True
            self.relist(now, replica)
            self._keep_floor(now, replica.pool)
        return replica

    def gone(self, now: float, id: str) -> Replica | None:
        """Forget it. Requests still on it hold the object and are given back to that."""
        replica = self.replicas.pop(id, None)
        if replica is None:
            self._stats.late_events += 1
            return None
        pool = replica.pool
        del pool.replicas[id]
        if not replica.draining:
            self._leave(replica)
        replica.gone = True
        self.relist(now, replica)
        for policy in pool.policies:
            policy.forget(replica)
        self._keep_floor(now, pool)
        return replica

    def _leave(self, replica: Replica) -> None:
        pool = replica.pool
        state = replica.health.state
        pool.members -= 1
        pool.out -= state is not State.READY
        pool.ejected -= state in OUT

    # --- availability

    def relist(self, now: float, replica: Replica) -> bool:
        """Bring the policies up to date about a replica. True: it can take requests and could not before."""
        pool = replica.pool
        hot = judge(replica)
        if hot is not replica.hot:
            replica.hot = hot
            self._stats.overheats += hot
        state = replica.health.state
        replica.open = state in OPEN and not (hot or replica.draining or replica.gone)
        if state is State.HALF_OPEN:
            # one request at a time, whatever old ones are still there; 0 makes its send take the slow path
            replica.limit = 0.0
            share = replica.share
            want = replica.open and (share is None or replica.in_flight < share)
        else:
            bound = pool.facts.max_in_flight if replica.share is None else replica.share
            # slow start holds for all workers together
            ramp = max(0.0, allowance(replica, now, pool.spec.slow_start) - replica.peers.in_flight)
            replica.limit = min(UNBOUNDED if bound is None else bound, ramp)
            want = replica.open and replica.in_flight < replica.limit
        if want:
            if replica.listed:
                for policy in pool.policies:
                    policy.update(replica)
                return False
            replica.listed = True
            for policy in pool.policies:
                policy.add(replica)
            return True
        if replica.listed:
            replica.listed = False
            for policy in pool.policies:
                policy.remove(replica)
        return False

    def scraped(self, now: float, replica: Replica, sample: LoadSample) -> bool:
        replica.scraped(now, sample)
        set_thresholds(replica, replica.pool.spec.overheat)
        return self.relist(now, replica)

    # --- health

    def shift(self, replica: Replica, signal: Signal) -> None:
        """One transition; the pool's counts follow."""
        health = replica.health
        before = health.state
        after = health.state = TRANSITIONS[before, signal]
        replica.pool.moved(replica, before, after)

    def succeeded(self, now: float, replica: Replica, trial: bool) -> None:
        """A request ended well, or a trial got its first byte. Called where that changes something."""
        health = replica.health
        health.consecutive = 0
        replica.handicap = 0.0
        if trial and not replica.draining and not replica.gone and health.state is State.TRIAL:
            others = replica.pool.members - replica.pool.out
            self.shift(replica, Signal.TRIAL_OK)
            health.recover(now)
            self._stats.recoveries += 1
            if others and replica.pool.spec.slow_start > 0:
                replica.ramp_from = now

    def trial_void(self, replica: Replica) -> None:
        if not replica.draining and not replica.gone and replica.health.state is State.TRIAL:
            self.shift(replica, Signal.TRIAL_VOID)

    def failed(self, now: float, replica: Replica, fault: Fault, sent_at: float, trial: bool) -> None:
        """An attempt failed there by the replica's fault. The caller relists it."""
        health = replica.health
        if replica.draining or replica.gone:
            return
        if not trial and (health.state is not State.READY or sent_at < health.ready_since):
            return  # an old request: what it says was known when the replica was taken out
        health.failed(now)
        pool = replica.pool
        spec = pool.spec.eject
        away = fault in UNPROCESSED
        cause = "trial" if trial else health.verdict(spec, fault.value if away else None)
        replica.handicap = min(HANDICAP_MAX, HANDICAP * health.consecutive)
        if cause is None:
            return
        others_out = pool.ejected if trial else pool.out
        if others_out + 1 <= may_be_out(pool.members, spec.max_share):
            health.back_off(now, spec, self._rng)
            self.shift(replica, Signal.EJECT)
        elif away or trial:
            health.rest(now)
            self.shift(replica, Signal.REST)
        else:
            self._stats.ejections["floor"] += 1
            return
        health.cause = f"{cause}: {fault.value}"
        health.hung = fault in HANGS
        health.hearsay = False
        self._stats.ejections[cause] += 1

    def probed(self, now: float, replica: Replica, ok: bool) -> None:
        health = replica.health
        if ok:
            self.shift(replica, Signal.PROBE_OK)
        else:
            health.back_off(now, replica.pool.spec.eject, self._rng)
            self.shift(replica, Signal.PROBE_FAILED)

    def _keep_floor(self, now: float, pool: Pool) -> None:
        """The pool has shrunk: ejected replicas come back to trial, the soonest due first, until the floor holds."""
        allowed = may_be_out(pool.members, pool.spec.eject.max_share)
        while pool.ejected > allowed:
            ejected = [r for r in pool.replicas.values() if r.health.state in OUT and not r.draining]
            soonest = min(ejected, key=lambda replica: replica.health.until)
            self.shift(soonest, Signal.FLOOR)
            self.relist(now, soonest)

    # --- time

    def sweep(self, now: float) -> list[str]:
        """What time does to each replica. Returns those to be probed."""
        probe: list[str] = []
        ready = State.READY
        for replica in self.replicas.values():
            changed = replica.ramp_from is not None
            if not replica.stale and replica.grow_old(now):
                set_thresholds(replica, replica.pool.spec.overheat)
                changed = True
            health = replica.health
            if replica.handicap and now - health.last_failure_at >= HANDICAP_SECONDS:
                replica.handicap = 0.0  # a half-open one's too, or its trial would never come where others are idle
                changed = True
            if health.state is ready:
                eject = replica.pool.spec.eject
                health.rotate(now, eject.window)
                if health.level:
                    health.forgive(now, eject)
            elif now >= health.until and not replica.draining:
                changed |= self._time_is_up(now, replica, probe)
            if changed:
                self.relist(now, replica)
        return probe

    def _time_is_up(self, now: float, replica: Replica, probe: list[str]) -> bool:
        health = replica.health
        match health.state:
            case State.EJECTED:
                self.shift(replica, Signal.BACKOFF_OVER)
                health.until = now + PROBE_TIMEOUT
                self._stats.probes += 1
                probe.append(replica.id)
            case State.PROBING:
                self.probed(now, replica, ok=False)
            case State.RESTING:
                self.shift(replica, Signal.BACKOFF_OVER)
            case _:
                return False
        return True
