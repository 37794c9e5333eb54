"""After a failure: another replica, a wait, or the end."""

from __future__ import annotations

from kilocard.dispatch.config import ONLY_REPLICA_PAUSE
from kilocard.dispatch.events import UNPROCESSED, Fault
from kilocard.dispatch.instructions import Instruction
from kilocard.dispatch.placing import Placer
from kilocard.dispatch.request import LiveRequest
from kilocard.dispatch.stats import Stats
from kilocard.dispatch.waiting import WaitingRoom


class Retrier:
    """Only for requests whose client has seen no content yet; the caller has seen to that."""

    def __init__(self, placer: Placer, room: WaitingRoom, requests: dict[int, LiveRequest], stats: Stats) -> None:
        self._place = placer.place
        self._untried = placer.untried
        self._room = room
        self._requests = requests
        self._stats = stats

    def retry(self, now: float, request: LiveRequest, fault: Fault) -> tuple[Instruction, ...] | None:
        """Another replica, a wait for one, or None: no retry. The request's own answer comes first."""
        model = request.model
        members = model.members
        untried = self._untried(request, members)
        mark = request.mark
        if mark is not None and mark.conviction is not None:
            return None
        if fault in UNPROCESSED and not untried and request.worked < model.spec.retry.attempts:
            # Nobody is left who might take it: wait for whoever comes back. Each replica that refused a connection
            # is out or rests, so this can't spin; the hold's own deadline bounds it.
            request.tried = ()
            request.spent = request.worked
            return self._room.hold_again(now, request, fault, parked=False)
        if request.spent >= model.spec.retry.attempts:
            return None
        # A refused connection was no work for anybody: trying another replica multiplies nothing.
        if fault not in UNPROCESSED and not model.budget.take(now, len(self._requests)):
            return None
        if mark is not None and mark.awaits_verdict():
            return self._room.hold_again(now, request, fault, parked=True)
        if untried:
            send = self._place(now, request)
            if send is not None:
                self._stats.retries[fault.value] += 1
                return (send,)
            return self._room.hold_again(now, request, fault, parked=True)
        if not members:
            request.tried = ()
            return self._room.hold_again(now, request, fault, parked=False)
        if members == 1 and fault is Fault.RESET:
            request.tried = ()
            request.not_before = now + ONLY_REPLICA_PAUSE * 2.0 ** (request.spent - 1)
            return self._room.hold_again(now, request, fault, parked=True)
        return None
