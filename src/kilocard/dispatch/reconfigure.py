"""A changed cluster file meets running traffic: what lives goes on, what is no more in the file ends in good order."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from kilocard.dispatch import isolation
from kilocard.dispatch.events import Reconfigured
from kilocard.dispatch.fleet import Fleet
from kilocard.dispatch.instructions import Drained, Instruction
from kilocard.dispatch.placing import Placer
from kilocard.dispatch.request import LiveRequest
from kilocard.dispatch.sharing import count_anew
from kilocard.dispatch.waiting import WaitingRoom

#: `LiveRequest.spent` of a request that gets no further attempt
NO_MORE = 1_000_000


class Reconfigurer:
    """Performs `Reconfigured`. `requests` is the dispatcher's table of live ones."""

    def __init__(
        self, fleet: Fleet, placer: Placer, room: WaitingRoom, requests: dict[int, LiveRequest], rng: Random
    ) -> None:
        self._fleet = fleet
        self._refuse = placer.refuse
        self._room = room
        self._requests = requests
        self._rng = rng

    def change(self, event: Reconfigured) -> Sequence[Instruction]:
        """The whole change in one step; afterwards everything that waits has had its chance."""
        now = event.now
        out: list[Instruction] = []
        for id in self._fleet.change(now, event.models, event.pools, event.scrape_interval):
            out.append(Drained(id))
        for request in list(self._requests.values()):
            self._lead_on(request, out)
        count_anew(self._fleet.pools.values(), self._fleet.queues)
        self._room.tick(now, self._fleet.queues, out)
        return out

    def _lead_on(self, request: LiveRequest, out: list[Instruction]) -> None:
        """A request whose way is gone gets another one; where its model has none any more, it ends.

        One that runs is left to finish, but does not start anew elsewhere.
        """
        model = isolation.model_for(self._fleet, request.model.spec.name, request.asked.tenant) or request.model
        if model is not request.model and model.routes:  # whose the pools are has changed
            self._room.move(request, model)
        routes = model.routes
        if request.route in routes:
            return
        if routes:
            request.route = model.only or model.draw(self._rng)
        elif request.replica is None:
            self._room.leave(request)
            del self._requests[request.id]
            out.append(self._refuse(request.id, isolation.no_way(self._fleet, model.spec.name, request.asked.tenant)))
        else:
            request.spent = request.worked = NO_MORE
