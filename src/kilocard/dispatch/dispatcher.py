"""Events in, instructions out: where a request goes, when it waits, when it is refused."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Final

from kilocard.core.signals import BOUNDS_S
from kilocard.dispatch import events as ev
from kilocard.dispatch import isolation, refusals
from kilocard.dispatch.config import PoolFacts
from kilocard.dispatch.events import UNPROCESSED, Event, Fault
from kilocard.dispatch.fleet import Fleet
from kilocard.dispatch.health import State
from kilocard.dispatch.hedging import Hedger
from kilocard.dispatch.instructions import Drained, Instruction, Probe
from kilocard.dispatch.membership import Membership
from kilocard.dispatch.placing import Placer
from kilocard.dispatch.quarantine import Quarantine
from kilocard.dispatch.reconfigure import Reconfigurer
from kilocard.dispatch.replica import Replica
from kilocard.dispatch.request import LiveRequest
from kilocard.dispatch.retry import SHARE as RETRY_SHARE
from kilocard.dispatch.retrying import Retrier
from kilocard.dispatch.snapshot import FleetState, snapshot
from kilocard.dispatch.stats import Stats
from kilocard.dispatch.waiting import WaitingRoom
from kilocard.routing.base import Outcome
from kilocard.spec.model import ModelSpec

NOTHING: Final[tuple[Instruction, ...]] = ()
#: faults that say nothing about the replica
BLAMELESS = frozenset({Fault.TOTAL})
#: a full queue is no failure either: another replica may have room, and this one is at work
TOO_MANY: Final = 429
_READY: Final = State.READY  # an enum's member is looked up by name each time


class Dispatcher:
    """The state machine behind every driver. Not thread-safe; one call of `handle` at a time.

    `models`: by public name. `pools`: what is known of each pool; one that is missing has no bounds.
    `rng`: all chance (ties, weights, jitter), so equal seeds and events give equal instructions.
    `scrape_interval`: seconds between two readings of one replica; ages are measured in it.
    """

    def __init__(
        self,
        models: Mapping[str, ModelSpec],
        pools: Mapping[str, PoolFacts],
        rng: Random,
        *,
        scrape_interval: float = 1.0,
    ) -> None:
        self.stats = Stats()
        self._rng = rng
        self.fleet = Fleet(models, pools, rng, scrape_interval, self.stats)
        self._models = self.fleet.models
        self._private = self.fleet.private
        self._replicas = self.fleet.replicas
        self._requests: dict[int, LiveRequest] = {}
        self.quarantine = Quarantine(self.stats)
        placer = self._placer = Placer(self.fleet, self.quarantine, self.stats)
        self._incidents = self.quarantine.incidents
        self._room = WaitingRoom(placer, self._requests, self.stats)
        self._retry = Retrier(placer, self._room, self._requests, self.stats).retry
        members = Membership(self.fleet, self._room, self.quarantine, self.stats, rng)
        self._hedger = Hedger(self.fleet, self._requests, self.quarantine, self.stats, self._give_back)
        self._handlers: dict[type, Callable[[Any], Sequence[Instruction]]] = {
            ev.Arrived: self._arrived,
            ev.Answered: self._answered,
            ev.FirstContent: self._first_content,
            ev.Finished: self._finished,
            ev.Failed: self._failed,
            ev.HedgeWon: self._hedger.won,
            ev.HedgeFailed: self._hedger.failed,
            ev.Abandoned: self._abandoned,
            ev.ReplicaUp: members.up,
            ev.ReplicaDraining: members.draining,
            ev.ReplicaGone: members.gone,
            ev.Scraped: members.scraped,
            ev.PeerLoad: members.peer_load,
            ev.PeerEjected: members.peer_ejected,
            ev.PeerConvicted: members.peer_convicted,
            ev.Probed: members.probed,
            ev.Tick: self._tick,
            ev.Reconfigured: Reconfigurer(self.fleet, placer, self._room, self._requests, rng).change,
        }

    def handle(self, event: Event) -> Sequence[Instruction]:
        """Take one event; perform what comes back in order."""
        return self._handlers[type(event)](event)

    @property
    def live(self) -> int:
        """Requests whose end has not been seen, held ones included."""
        return len(self._requests)

    @property
    def held(self) -> int:
        return self._room.count

    def may_use(self, model: str, tenant: str) -> bool:
        """Whether this tenant may use some pool of this model: pools may belong to others."""
        return isolation.may_use(self.fleet, model, tenant)

    def snapshot(self, now: float) -> FleetState:
        """Everything as plain data. O(replicas)."""
        return snapshot(
            self.fleet, self.quarantine.convicted.values(), now, held=self._room.count, live=len(self._requests)
        )

    # --- a request's life

    def _arrived(self, event: ev.Arrived) -> Sequence[Instruction]:
        now, id, name, prompt, declared, deadline, tenant, _, _, fingerprint, _, _ = event
        model = self._models.get(name)
        if self._private:
            model = self._private.get((name, tenant), model)
        if model is None:
            return (self._placer.refuse(id, isolation.no_way(self.fleet, name, tenant)),)
        if id in self._requests:
            raise ValueError(f"request id {id} is in use: the driver must never reuse one")
        if not model.routes:
            return (self._placer.refuse(id, isolation.no_way(self.fleet, name, tenant)),)
        if now >= deadline:
            return (self._placer.refuse(id, refusals.no_capacity("deadline_exceeded", name, 0.0, 0)),)
        model.budget.tokens += RETRY_SHARE
        if model.hedge is not None:
            model.hedge_budget += model.hedge.budget
        expected = int(declared * model.used_share)
        route = model.only or model.draw(self._rng)
        tally = route.pool.tally
        tally.arrived += 1
        tally.prompt_tokens += prompt
        request = LiveRequest(id, model, route, prompt, expected, declared, event)
        if fingerprint and (poison := self.quarantine.arrived(now, request, fingerprint)) is not None:
            return (self._placer.refuse(id, poison),)
        self._requests[id] = request
        if not model.hold.waiting:
            send = self._placer.place(now, request)
            if send is not None:
                return (send,)
        return self._room.hold(now, request)

    def _answered(self, event: ev.Answered) -> Sequence[Instruction]:
        if event[1] not in self._requests:
            self.stats.late_events += 1
        return NOTHING

    def _first_content(self, event: ev.FirstContent) -> Sequence[Instruction]:
        now, id = event
        request = self._requests.get(id)
        if request is None or (replica := request.replica) is None or not request.pending:
            self.stats.late_events += 1
            return NOTHING
        if request.hedge is not None:
            return (*self._hedger.drop(now, request), *self._first_content(event))
        request.pending = False
        request.content_at = now
        replica.first_content(request.work)
        if request.mark is not None:
            self.quarantine.answered(now, request, request.mark, whole=False)
        if self._incidents:
            self.quarantine.lives(now, replica.id, proof=True)
        pool = replica.pool
        pool.tally.first_token[bisect_left(BOUNDS_S, now - request.asked[0])] += 1
        if pool.observers:
            outcome = Outcome(now, request.work, now - request.sent_at, None, None, False, request.ahead)
            for policy in pool.observers:
                policy.observe(replica, outcome)
        if request.trial:
            request.trial = False
            self.fleet.succeeded(now, replica, trial=True)
        elif replica.listed:
            for policy in pool.policies:
                policy.update(replica)
            return NOTHING
        if self.fleet.relist(now, replica) and self._room.count:
            return self._room.release(now, pool)
        return NOTHING

    def _finished(self, event: ev.Finished) -> Sequence[Instruction]:
        now, id, status, produced = event
        request = self._requests.pop(id, None)
        if request is None:
            self.stats.late_events += 1
            return NOTHING
        replica = request.replica
        if replica is None:
            # held, so there was nothing to finish: a driver's mistake, but nothing may leak
            self.stats.late_events += 1
            self._room.leave(request)
            return NOTHING
        self.stats.ends["finished"] += 1
        pool = replica.pool
        tally = pool.tally
        tally.finished += 1
        if produced is not None:
            tally.output_tokens += produced
            request.model.learn(request.declared, produced)
            if request.hold_until:
                self._room.settle(request, produced)
        if pool.observers:
            self._observe_end(now, request, replica, produced)
        if self._incidents and status < 500:
            self.quarantine.lives(now, replica.id, proof=True)
        if request.mark is not None and status < 500:
            self.quarantine.answered(now, request, request.mark, whole=True)
        if status >= 500:
            self.fleet.failed(now, replica, Fault.STATUS, request.sent_at, request.trial)
        else:
            health = replica.health
            health.ok += 1
            if health.consecutive or request.trial:
                self.fleet.succeeded(now, replica, request.trial)
        if request.hedge is not None:
            return (*self._hedger.drop(now, request), *self._give_back(now, request, replica))
        return self._give_back(now, request, replica)

    def _observe_end(self, now: float, request: LiveRequest, replica: Replica, produced: int | None) -> None:
        first = now - request.sent_at if request.pending else None
        decode = 0.0 if request.pending else now - request.content_at
        outcome = Outcome(now, request.work, first, decode, produced, False)
        for policy in replica.pool.observers:
            policy.observe(replica, outcome)

    def _give_back(self, now: float, request: LiveRequest, replica: Replica) -> Sequence[Instruction]:
        """The lease ends, exactly once: `request.replica` is its only copy."""
        request.replica = None
        if request.mark is not None:
            self.quarantine.left(request, request.mark, replica)
        replica.end(request.work, request.output, request.pending)
        pool = replica.pool
        if replica.listed and replica.health.state is _READY:
            for policy in pool.policies:
                policy.update(replica)
        elif replica.gone:
            return NOTHING
        else:
            self.fleet.relist(now, replica)
            if replica.draining and not replica.in_flight:
                return (Drained(replica.id),)
        if self._room.count:
            return self._room.release(now, pool)
        return NOTHING

    def _abandoned(self, event: ev.Abandoned) -> Sequence[Instruction]:
        now, id = event
        request = self._requests.pop(id, None)
        if request is None:
            self.stats.late_events += 1
            return NOTHING
        self.stats.ends["abandoned"] += 1
        replica = request.replica
        if replica is None:
            self._room.leave(request)
            return NOTHING
        if request.trial:
            self.fleet.trial_void(replica)
        if request.hedge is not None:
            return (*self._hedger.drop(now, request), *self._give_back(now, request, replica))
        return self._give_back(now, request, replica)

    # --- failure

    def _failed(self, event: ev.Failed) -> Sequence[Instruction]:
        now, id, fault, status, detail, fingerprint = event
        request = self._requests.get(id)
        if request is None:
            self.stats.late_events += 1
            return NOTHING
        self.stats.faults[fault.value] += 1
        replica = request.replica
        if replica is None:
            return (self._room.time_out(now, request),)
        if request.hedge is not None and fault is Fault.TOTAL:
            return (*self._hedger.drop(now, request), *self._failed(event))
        content = not request.pending
        if fault in BLAMELESS or status == TOO_MANY:
            if request.trial:
                self.fleet.trial_void(replica)
        else:
            self.fleet.failed(now, replica, fault, request.sent_at, request.trial)
            for policy in replica.pool.observers:
                policy.observe(replica, Outcome(now, request.work, None, None, None, True))
        news = self.quarantine.failed(now, request, replica, fault, fingerprint)
        after = self._give_back(now, request, replica)
        request.trial = False
        request.pending = True
        request.spent += 1
        request.worked += fault not in UNPROCESSED or bool(fingerprint)
        if replica.id not in request.tried:
            request.tried += (replica.id,)
        if request.hedge is not None:
            self._hedger.promote(request, "took_over")
            return (*after, *news)
        answer = (
            None if content or fault is Fault.TOTAL or now >= request.deadline else self._retry(now, request, fault)
        )
        if answer is None:
            del self._requests[id]
            mark = request.mark
            if content or mark is None or mark.conviction is None:
                answer = (self._placer.refuse(id, refusals.upstream(fault, detail, request.attempts)),)
            else:
                answer = (self._placer.refuse(id, refusals.poison(mark.conviction, now)),)
        return (*answer, *after, *news)

    # --- time

    def _tick(self, event: ev.Tick) -> Sequence[Instruction]:
        now = event.now
        out: list[Instruction] = [Probe(id, token=self._replicas[id].health.hung) for id in self.fleet.sweep(now)]
        out += self.quarantine.tick(now)
        self._room.tick(now, self.fleet.queues, out)
        self._hedger.tick(now, out)
        return out
