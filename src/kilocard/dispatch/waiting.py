"""The gateway's own queue: who waits, who is next, who has waited too long."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from heapq import heapify, heappop, heapreplace

from kilocard.dispatch import refusals
from kilocard.dispatch.config import RELEASE_BURST
from kilocard.dispatch.deadlines import Deadlines
from kilocard.dispatch.events import Fault
from kilocard.dispatch.hold import rank
from kilocard.dispatch.instructions import Hold, Instruction, Refuse
from kilocard.dispatch.placing import Placer
from kilocard.dispatch.request import LiveRequest
from kilocard.dispatch.sharing import changed
from kilocard.dispatch.stats import Stats
from kilocard.dispatch.topology import Model, Pool


class WaitingRoom:
    """Held requests of all models. `requests` is the dispatcher's table of live ones: whoever ends here leaves it."""

    def __init__(self, placer: Placer, requests: dict[int, LiveRequest], stats: Stats) -> None:
        self._place = placer.place
        self._untried = placer.untried
        self._refuse = placer.refuse
        self._requests = requests
        self._stats = stats
        self._deadlines = Deadlines()
        #: requests that wait
        self.count = 0

    def hold(self, now: float, request: LiveRequest, *, parked: bool = False) -> tuple[Instruction, ...]:
        """Queue a request that no replica can take, or refuse it, or refuse another one that has to make way."""
        model = request.model
        hold = model.hold
        spec = model.spec.hold
        shed: tuple[Instruction, ...] = ()
        waiting = len(hold)
        if waiting >= spec.max:
            loser = hold.who_makes_way(request)
            if loser is not request:
                self.leave(loser)
            del self._requests[loser.id]
            loser.route.pool.tally.refused += 1
            error = refusals.no_capacity("hold_full", model.spec.name, 0.0, waiting)
            shed = (self._refuse(loser.id, error),)
            if loser is request:
                return shed
        if not request.hold_until:
            request.hold_until = min(now + spec.timeout, request.deadline)
            request.held_at = now
            request.bills = None
        if parked or (request.mark is not None and request.mark.restricted):
            hold.parked[request.id] = request
        else:
            self._line_up(request)
        self.count += 1
        self._deadlines.add(request, self._requests, self.count)
        reason = model.why_nobody()
        self._stats.holds[reason] += 1
        return (Hold(request.id, reason), *shed)

    def _line_up(self, request: LiveRequest) -> None:
        model = request.model
        place = rank(request)
        line = model.hold.lines[place]
        if not line.count:
            # as a tenant among tenants (fair.py), so a queue among those of one pool: no credit for having been empty
            line.tag = max([line.tag, *(route.pool.times[place] for route in model.routes)])
        model.hold.join(request)
        changed(model, place, request.asked.tenant)

    def hold_again(
        self, now: float, request: LiveRequest, fault: Fault, *, parked: bool
    ) -> tuple[Instruction, ...] | None:
        if request.hold_until and now >= request.hold_until:
            return None
        request.fault = fault
        return self.hold(now, request, parked=parked)

    def settle(self, request: LiveRequest, output: int) -> None:
        """A request that was held has ended with so many tokens: its tenant pays for those."""
        request.model.hold.line(request).settle(request, output)

    def leave(self, request: LiveRequest) -> None:
        model = request.model
        if model.hold.drop(request):
            self.count -= 1
            changed(model, rank(request), request.asked.tenant)

    def move(self, request: LiveRequest, model: Model) -> None:
        """Its tenant uses other pools for the model from now on."""
        old = request.model.hold
        parked = request.id in old.parked
        held = old.drop(request)
        changed(request.model, rank(request), request.asked.tenant)
        request.model = model
        if parked:
            model.hold.parked[request.id] = request
        elif held:
            self._line_up(request)

    def release(self, now: float, pool: Pool) -> Sequence[Instruction]:
        """Capacity has come free in a pool."""
        out: list[Instruction] = []
        self._release(now, pool.models, out)
        return out

    def _release(self, now: float, models: Iterable[Model], out: list[Instruction]) -> None:
        """Send who is next while there is room. Of several queues the one with the higher class is next, then the one
        that has had least for its tenants' weights.

        Each send counts at once, so a replica gets what it has room for, never more on the word of one sample.
        """
        turns: list[Turn] = []
        for number, model in enumerate(models):
            if model.hold.waiting and (free := sum(len(route.policy) for route in model.routes)):
                turns.append(_turn(model, number, RELEASE_BURST * free))
        heapify(turns)
        while turns:
            *_, number, quota, model = turns[0]
            if self._release_one(now, model, out) and model.hold.waiting and quota > 1:
                heapreplace(turns, _turn(model, number, quota - 1))
            else:
                heappop(turns)

    def _release_one(self, now: float, model: Model, out: list[Instruction]) -> bool:
        """The next of one queue: sent, or refused because its time is over. False: there is no room for it."""
        hold = model.hold
        place, line = hold.first()
        request = line.head()
        if now >= request.hold_until:
            out.append(self.time_out(now, request))
            return True
        if request.mark is not None and request.mark.restricted:  # since it began to wait; others need not wait for it
            hold.drop(request)
            changed(model, place, request.asked.tenant)
            hold.parked[request.id] = request
            return True
        send = self._place(now, request)
        if send is None:
            return False
        replica = request.replica
        assert replica is not None
        if request.attempts == 1:
            replica.pool.tally.held(now - request.held_at)
        weight = line.weight
        if charge := line.serve(request):
            times = replica.pool.times
            times[place] = max(times[place], line.tag)
            line.tag += charge / weight
            changed(model, place, request.asked.tenant)
        hold.waiting -= 1
        self.count -= 1
        self._count_retry(request)
        out.append(send)
        return True

    def _count_retry(self, request: LiveRequest) -> None:
        if request.fault is not None:
            self._stats.retries[request.fault.value] += 1
            request.fault = None

    def _release_parked(self, now: float, model: Model, out: list[Instruction]) -> None:
        parked = model.hold.parked
        for request in list(parked.values()):
            if now < request.not_before:
                continue
            if (mark := request.mark) is not None:
                if mark.conviction is not None:
                    self.leave(request)
                    del self._requests[request.id]
                    out.append(self._refuse(request.id, refusals.poison(mark.conviction, now)))
                    continue
                if mark.awaits_verdict():
                    continue
            if (send := self._place(now, request)) is not None:
                del parked[request.id]
                self.count -= 1
                self._count_retry(request)
                out.append(send)
            elif request.tried and not self._untried(request, model.members):
                # whom it waited for is gone: the rest has failed it already
                fault = request.fault or Fault.RESET
                self.leave(request)
                del self._requests[request.id]
                out.append(self._refuse(request.id, refusals.upstream(fault, "", request.attempts)))

    def tick(self, now: float, models: Collection[Model], out: list[Instruction]) -> None:
        """Refuse who has waited too long, then release whom a change since the last event may have helped."""
        for request in self._deadlines.due(now, self._requests):
            out.append(self.time_out(now, request))
        for model in models:
            model.budget.cap(len(self._requests))
            if model.hold.parked:
                self._release_parked(now, model, out)
        self._release(now, models, out)

    def time_out(self, now: float, request: LiveRequest) -> Refuse:
        """End a held request: for want of room, or with the error that made it wait."""
        self.leave(request)
        del self._requests[request.id]
        if request.fault is not None:
            return self._refuse(request.id, refusals.upstream(request.fault, "", request.attempts))
        model = request.model
        if not model.members:
            code = "no_replica"
        else:
            code = "hold_timeout" if now < request.deadline else "deadline_exceeded"
        waited = now - request.held_at
        tally = request.route.pool.tally
        tally.refused += 1
        tally.held(waited)
        return self._refuse(request.id, refusals.no_capacity(code, model.spec.name, waited, 0))


Turn = tuple[int, bool, float, float, int, int, Model]


def _turn(model: Model, number: int, quota: int) -> Turn:
    """A queue among queues, lowest first; `quota` are the requests that it may still send."""
    place, line = model.hold.first()
    return place, not line.retries, line.tag, line.head().held_at, number, quota, model
