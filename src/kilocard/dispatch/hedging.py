"""A second attempt where the first token is late. Whoever has content first wins; the other is cancelled.

Tick ──late, room, budget──▶ Hedge      two leases: LiveRequest.replica and LiveRequest.hedge
  FirstContent, Finished, Abandoned     the first attempt's: the second lease is given back
  HedgeWon                              the second becomes the first, whose lease is given back
  Failed                                of the first, while a second runs: the second becomes the first
  HedgeFailed                           of the second: nothing changes for the client
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kilocard.core.decision import Decision
from kilocard.dispatch.events import Fault, HedgeFailed, HedgeWon
from kilocard.dispatch.fleet import Fleet
from kilocard.dispatch.health import State
from kilocard.dispatch.instructions import Hedge, Instruction
from kilocard.dispatch.quarantine import Quarantine
from kilocard.dispatch.replica import Replica
from kilocard.dispatch.request import LiveRequest, Second
from kilocard.dispatch.slow_start import USUAL
from kilocard.dispatch.stats import Stats
from kilocard.dispatch.topology import Model, Pool
from kilocard.routing.base import Outcome
from kilocard.routing.load import UNBOUNDED

NOTHING: tuple[Instruction, ...] = ()
#: hedges that a model can save up
SAVED = 10.0
#: nothing is late before this many seconds: a tick is not finer
SOONEST = 0.1

GiveBack = Callable[[float, LiveRequest, Replica], Sequence[Instruction]]


class Hedger:
    """`give_back` ends the lease of `request.replica`."""

    def __init__(
        self, fleet: Fleet, requests: dict[int, LiveRequest], quarantine: Quarantine, stats: Stats, give_back: GiveBack
    ) -> None:
        self._fleet = fleet
        self._requests = requests
        self._quarantine = quarantine
        self._stats = stats
        self._give_back = give_back

    # --- who gets one

    def tick(self, now: float, out: list[Instruction]) -> None:
        """Look through everything that is sent; only where some model wants it. The oldest come first."""
        wanted = False
        for model in self._fleet.queues:
            if model.hedge is not None:
                model.hedge_budget = min(SAVED, model.hedge_budget)
                wanted |= model.hedge_budget >= 1.0
        if not wanted:
            return
        for request in self._requests.values():
            if (
                request.pending
                and request.replica is not None
                and request.hedge is None
                and request.model.hedge is not None
                and self._late(now, request, request.replica)
            ):
                out += self._second(now, request, request.replica)

    def _late(self, now: float, request: LiveRequest, replica: Replica) -> bool:
        waited = now - request.sent_at
        if waited < SOONEST or (request.mark is not None and request.mark.restricted):
            return False
        hedge = request.model.hedge
        after = None if hedge is None else hedge.after
        if after is None and request.asked.stream:  # an answer in one piece takes as long as it is: nothing to learn
            after = replica.pool.first_tokens.late(replica, request.work)
        return after is not None and waited >= after

    def _second(self, now: float, request: LiveRequest, first: Replica) -> Sequence[Instruction]:
        """Send it again in the same pool, which its tenant may use, if there is room to spare."""
        model = request.model
        spec = model.hedge
        route = next((route for route in model.routes if route.pool is first.pool), None)
        if spec is None or model.hedge_budget < 1.0 or route is None or len(model.hold):
            return NOTHING
        if load(first.pool) >= spec.max_load:
            return NOTHING
        decision = route.policy.choose((*request.tried, first.id))
        if decision is None:
            return NOTHING
        replica = self._fleet.replicas[decision.target]
        if replica.health.state is not State.READY or replica.waiting > 0 or replica.in_flight >= room(replica):
            return NOTHING
        model.hedge_budget -= 1.0
        request.attempts += 1
        request.hedge = Second(replica, now)
        replica.begin(request.work, request.output)
        self._fleet.relist(now, replica)
        self._count(model, "sent")
        decision = Decision(replica.id, "hedge: the first token is late", decision.score)
        return (Hedge(request.id, request.attempts, replica.id, first.pool.name, decision),)

    # --- what becomes of it

    def won(self, event: HedgeWon) -> Sequence[Instruction]:
        now, id = event
        request = self._requests.get(id)
        if request is None or request.hedge is None or request.replica is None or not request.pending:
            self._stats.late_events += 1
            return NOTHING
        first = request.replica
        if request.trial:
            request.trial = False
            self._fleet.trial_void(first)
        # it has taken this long at least: slowness that is cut short would else never be seen
        outcome = Outcome(now, request.work, now - request.sent_at, None, None, False)
        for observer in first.pool.observers:
            observer.observe(first, outcome)
        after = self._give_back(now, request, first)
        self.promote(request, "won")
        return after

    def promote(self, request: LiveRequest, result: str) -> None:
        """The second attempt is the only one now. The first one's lease has been given back."""
        second, request.hedge = request.hedge, None
        self._count(request.model, result)
        assert second is not None and request.replica is None
        request.replica = second.replica
        request.sent_at = second.sent_at
        request.ahead = 0
        request.pending = True
        if request.mark is not None:
            self._quarantine.sent(second.sent_at, request, request.mark, second.replica)

    def drop(self, now: float, request: LiveRequest, result: str = "lost") -> Sequence[Instruction]:
        """The second attempt is over: its lease is given back. The first one's stays as it is."""
        second, request.hedge = request.hedge, None
        assert second is not None
        first = request.replica
        after = self._give_back(now, request, second.replica)  # pending, as both were
        request.replica = first
        self._count(request.model, result)
        return after

    def failed(self, event: HedgeFailed) -> Sequence[Instruction]:
        now, id, fault, status, _, fingerprint = event
        request = self._requests.get(id)
        if request is None or (second := request.hedge) is None:
            self._stats.late_events += 1
            return NOTHING
        self._stats.faults[fault.value] += 1
        replica = second.replica
        if status != 429 and fault is not Fault.TOTAL:
            self._fleet.failed(now, replica, fault, second.sent_at, False)
            for observer in replica.pool.observers:
                observer.observe(replica, Outcome(now, request.work, None, None, None, True))
        news = self._quarantine.failed(now, request, replica, fault, fingerprint)
        if replica.id not in request.tried:
            request.tried += (replica.id,)
        return (*self.drop(now, request, "failed"), *news)

    def _count(self, model: Model, result: str) -> None:
        self._stats.hedges[model.spec.name, result] += 1


def room(replica: Replica) -> float:
    """Requests that it can run at once, as far as we know or else usually."""
    most = min(replica.capacity, replica.limit)
    return USUAL if most == UNBOUNDED else most


def load(pool: Pool) -> float:
    """Share of the pool's room that is taken. Replicas that can take nothing have no room."""
    open_ones = [replica for replica in pool.replicas.values() if replica.open]
    total = sum(room(replica) for replica in open_ones)
    return sum(replica.load for replica in open_ones) / total if total else 1.0
