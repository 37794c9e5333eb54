"""Who wait side by side take turns by what they have been charged: start-time fair queueing (Goyal, Vin, Cheng, 1996).

Each flow that waits has a tag, the lowest tag is next, and being served raises it by charge ÷ weight. A flow that
comes back starts at the virtual time (the tag that was served last), so it gains nothing by having been idle, and waits
behind nobody's whole backlog. Flows that wait all the time differ in charge ÷ weight by one request of each at most,
and by what estimates of requests under way are wrong: they are put right when the truth is known. docs/fairness.md
has the proof. Used at two levels: tenants in a line, and sizes in a tenant (fair.py).
"""

from __future__ import annotations

from collections import OrderedDict
from heapq import heapify, heappop, heappush, heapreplace

from kilocard.dispatch.request import LiveRequest

#: the heap is rebuilt, and idle flows are forgotten, at more than this × those that wait + SPARE: memory stays flat
STALE_FACTOR = 2
SPARE = 16


class Flow:
    """One of those who take turns."""

    __slots__ = ("carry", "entry", "given", "name", "queues", "requests", "tag", "turn", "weight", "within")

    def __init__(self, name: str, tag: float) -> None:
        self.name = name
        #: as it was given, over how many queues it is spread (sharing.py), and what that makes it here
        self.given = 1.0
        self.queues = 1
        self.weight = 1.0
        #: held requests, first come first
        self.requests: OrderedDict[int, LiveRequest] = OrderedDict()
        #: those among whom it shares out its own turns; None: its requests go first come, first served
        self.within: Turns | None = None
        #: charge ÷ weight until now, on the scale of the virtual time
        self.tag = tag
        #: its place in the heap while it waits
        self.entry: Entry | None = None
        #: how often it has begun to wait, and what it was still charged above the virtual time when it began last
        self.turn = 0
        self.carry = 0.0


Entry = tuple[float, int, Flow]

#: who was charged for a request, in which of its turns, and at which weight
Bill = tuple[Flow, int, float]


class Turns:
    """Flows by name, of which some wait. O(log flows) for each step."""

    __slots__ = ("_flows", "_heap", "_most_flows", "_number", "time", "waiting", "weight")

    def __init__(self) -> None:
        #: flows that wait, and the sum of their weights
        self.waiting = 0
        self.weight = 0.0
        #: virtual time: the highest tag that has been served
        self.time = 0.0
        self._flows: dict[str, Flow] = {}
        self._most_flows = SPARE
        self._heap: list[Entry] = []
        #: of the newest entry: equal tags leave in the order in which they came
        self._number = 0

    def join(self, name: str, weight: float, request: LiveRequest) -> Flow:
        """The request waits in this flow; the weight is the flow's from now on."""
        flow = self._flows.get(name) or self._new_flow(name)
        if not flow.requests:
            flow.turn += 1
            flow.tag = max(flow.tag, self.time)
            flow.carry = flow.tag - self.time
            flow.given = flow.weight = weight
            flow.queues = 1
            self.waiting += 1
            self.weight += weight
            self._place(flow)
        elif weight != flow.given:  # a reload has changed it
            flow.given = weight
            self.spread(flow, flow.queues)
        flow.requests[request.id] = request
        return flow

    def first(self) -> Flow:
        """Whose turn it is; only while somebody waits."""
        heap = self._heap
        while True:
            flow = heap[0][2]
            if flow.entry is heap[0]:
                return flow
            heappop(heap)

    def serve(self, flow: Flow, request: LiveRequest, charge: float) -> Bill:
        """A request of the first flow has been sent."""
        if flow.tag > self.time:
            self.time = flow.tag
        weight = flow.weight
        flow.tag += charge / weight
        if len(flow.requests) > 1:
            self._number += 1
            flow.entry = (flow.tag, self._number, flow)
            heapreplace(self._heap, flow.entry)
        self.leave(flow, request)
        return flow, flow.turn, weight

    def leave(self, flow: Flow, request: LiveRequest) -> None:
        """It waits no more in this flow."""
        del flow.requests[request.id]
        if not flow.requests:
            flow.entry = None
            self.waiting -= 1
            self.weight -= flow.weight

    def correct(self, bill: Bill, wrong: float) -> bool:
        """A charge was too low by so much (below 0: too high). False if it has been forgotten meanwhile.

        One from before the flow's last return counts as far as it still stands above the time of that return: what it
        has been idle for is not given back to it.
        """
        flow, turn, weight = bill
        if self._flows.get(flow.name) is not flow:
            return False  # nobody has waited in between: everything began anew
        wrong /= weight
        if wrong < 0.0 and turn != flow.turn:
            wrong = max(wrong, -flow.carry)
            flow.carry += wrong
        flow.tag += wrong
        if flow.requests:
            self._place(flow)
        return True

    def spread(self, flow: Flow, queues: int) -> None:
        """Over so many queues from now on. Only while it waits."""
        flow.queues = queues
        weight = flow.given / queues
        self.weight += weight - flow.weight
        flow.weight = weight

    def get(self, name: str) -> Flow | None:
        return self._flows.get(name)

    def flows(self) -> list[Flow]:
        """Those that wait."""
        return [flow for flow in self._flows.values() if flow.requests]

    def forget(self) -> None:
        """With nobody waiting there is nothing to share: what was charged is forgotten."""
        self._flows.clear()
        self._heap.clear()
        self.weight = 0.0  # no sum of rounding errors

    @property
    def entries(self) -> int:
        """Heap entries and flows in memory, stale and idle ones included, at this level and below."""
        below = sum(flow.within.entries for flow in self._flows.values() if flow.within is not None)
        return len(self._heap) + len(self._flows) + below

    def _place(self, flow: Flow) -> None:
        self._number += 1
        flow.entry = entry = (flow.tag, self._number, flow)
        heap = self._heap
        heappush(heap, entry)
        if len(heap) > STALE_FACTOR * self.waiting + SPARE:
            self._heap = [flow.entry for flow in self._flows.values() if flow.entry is not None]
            heapify(self._heap)

    def _new_flow(self, name: str) -> Flow:
        if len(self._flows) >= self._most_flows:
            self._flows = {name: flow for name, flow in self._flows.items() if flow.requests or flow.tag > self.time}
            self._most_flows = STALE_FACTOR * len(self._flows) + SPARE
        flow = self._flows[name] = Flow(name, self.time)
        return flow
