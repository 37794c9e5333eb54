"""The gateway's own queue: who waits, who is next, who has waited too long."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kilocard.dispatch import refusals
from kilocard.dispatch.config import RELEASE_BURST
from kilocard.dispatch.events import Fault
from kilocard.dispatch.hold import Deadlines
from kilocard.dispatch.instructions import Hold, Instruction, Refuse
from kilocard.dispatch.placing import Placer
from kilocard.dispatch.request import LiveRequest
from kilocard.dispatch.stats import Stats
from kilocard.dispatch.topology import Model, Pool

NOTHING: tuple[Instruction, ...] = ()


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

    def hold(self, now: float, request: LiveRequest, *, parked: bool = False) -> Instruction:
        """Queue a request that no replica can take, or refuse it."""
        model = request.model
        hold = model.hold
        spec = model.spec.hold
        if len(hold) >= spec.max:
            del self._requests[request.id]
            return self._refuse(request.id, refusals.no_capacity("hold_full", model.spec.name, 0.0, len(hold)))
        if not request.hold_until:
            request.hold_until = min(now + spec.timeout, request.deadline)
            request.held_at = now
        if parked:
            hold.parked[request.id] = request
        else:
            hold.line[request.id] = request
            if request.attempts:
                hold.line.move_to_end(request.id, last=False)
        self.count += 1
        self._deadlines.add(request, self._requests, self.count)
        reason = model.why_nobody()
        self._stats.holds[reason] += 1
        return Hold(request.id, reason)

    def hold_again(self, now: float, request: LiveRequest, fault: Fault, *, parked: bool) -> Instruction | None:
        if request.hold_until and now >= request.hold_until:
            return None
        request.fault = fault
        return self.hold(now, request, parked=parked)

    def leave(self, request: LiveRequest) -> None:
        if request.model.hold.drop(request.id):
            self.count -= 1

    def release(self, now: float, pool: Pool) -> Sequence[Instruction]:
        """Capacity has come free in a pool: first come, first served over its models."""
        waiting = [model for model in pool.models if model.hold.line]
        if not waiting:
            return NOTHING
        if len(waiting) > 1:
            waiting.sort(key=lambda model: next(iter(model.hold.line.values())).held_at)
        out: list[Instruction] = []
        for model in waiting:
            self._release_line(now, model, out)
        return out

    def _release_line(self, now: float, model: Model, out: list[Instruction]) -> None:
        """Each send counts at once, so a replica gets what it has room for, never more on the word of one sample."""
        line = model.hold.line
        quota = RELEASE_BURST * sum(len(route.policy) for route in model.routes)
        while line and quota > 0:
            request = next(iter(line.values()))
            send = self._place(now, request)
            if send is None:
                return
            del line[request.id]
            self.count -= 1
            self._count_retry(request)
            out.append(send)
            quota -= 1

    def _count_retry(self, request: LiveRequest) -> None:
        if request.fault is not None:
            self._stats.retries[request.fault.value] += 1
            request.fault = None

    def _release_parked(self, now: float, model: Model, out: list[Instruction]) -> None:
        parked = model.hold.parked
        for request in list(parked.values()):
            if now < request.not_before:
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

    def tick(self, now: float, models: Iterable[Model], out: list[Instruction]) -> None:
        """Refuse who has waited too long, then release whom a change since the last event may have helped."""
        for request in self._deadlines.due(now, self._requests):
            out.append(self.time_out(now, request))
        for model in models:
            model.budget.cap(len(self._requests))
            if model.hold.parked:
                self._release_parked(now, model, out)
            if model.hold.line:
                self._release_line(now, model, out)

    def time_out(self, now: float, request: LiveRequest) -> Refuse:
        """End a held request: for want of room, or with the error that made it wait."""
        self.leave(request)
        del self._requests[request.id]
        if request.fault is not None:
            return self._refuse(request.id, refusals.upstream(request.fault, "", request.attempts))
        model = request.model
        code = "hold_timeout" if model.members else "no_replica"
        waited = now - request.held_at
        return self._refuse(request.id, refusals.no_capacity(code, model.spec.name, waited, 0))
