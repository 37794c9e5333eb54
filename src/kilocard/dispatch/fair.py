"""Tenants of one priority class share what comes free, by the cost of their requests in tokens.

Start-time fair queueing (Goyal, Vin, Cheng, 1996): each tenant that waits has a tag, the lowest tag is served next,
and being served raises it by cost ÷ weight. A tenant that comes back starts at the virtual time (the tag that was
served last), so it gains nothing by having been idle, and waits behind nobody's whole backlog. Tenants that wait all
the time differ in cost ÷ weight by one request of each at most, and by what estimates of requests under way are
wrong: they are put right when the real output is known. docs/fairness.md has the proof.
"""

from __future__ import annotations

from collections import OrderedDict
from heapq import heapify, heappop, heappush, heapreplace

from kilocard.dispatch.lengths import Lengths
from kilocard.dispatch.request import LiveRequest
from kilocard.routing.queue_depth import DECODE_PER_REQUEST, PREFILL_PER_REQUEST

#: the heap is rebuilt, and idle flows are forgotten, at more than this × those that wait + SPARE: memory stays flat
STALE_FACTOR = 2
SPARE = 64


def cost(prompt: int, output: int) -> float:
    """What a request takes, in requests: its place, its prompt and its output as the load index weighs them."""
    return 1.0 + PREFILL_PER_REQUEST * prompt + DECODE_PER_REQUEST * output


class Flow:
    """One tenant in one line."""

    __slots__ = ("carry", "entry", "requests", "tag", "tenant", "turn", "weight")

    def __init__(self, tenant: str, tag: float) -> None:
        self.tenant = tenant
        self.weight = 1.0
        #: held requests, first come first
        self.requests: OrderedDict[int, LiveRequest] = OrderedDict()
        #: cost ÷ weight that it has been charged, on the line's scale
        self.tag = tag
        #: its place in the line's heap while it waits
        self.entry: Entry | None = None
        #: how often it has begun to wait, and what it was still charged above the virtual time when it began last
        self.turn = 0
        self.carry = 0.0


Entry = tuple[float, int, Flow]


class Line:
    """Who waits in one priority class of one queue: retries first, then tenants by fair share."""

    __slots__ = ("_flows", "_heap", "_lengths", "_most_flows", "_number", "count", "retries", "tag", "time", "waiting",
                 "weight")  # fmt: skip

    def __init__(self) -> None:
        #: requests
        self.count = 0
        #: those that were sent once and failed: paid already, and longest under way
        self.retries: OrderedDict[int, LiveRequest] = OrderedDict()
        #: tenants that wait, and the sum of their weights
        self.waiting = 0
        self.weight = 0.0
        #: virtual time: the highest tag that has been served
        self.time = 0.0
        #: this line's own tag among the lines that share a pool (see waiting.py)
        self.tag = 0.0
        self._flows: dict[str, Flow] = {}
        self._most_flows = SPARE
        self._heap: list[Entry] = []
        #: of the newest entry: equal tags leave in the order in which they came
        self._number = 0
        self._lengths = Lengths()

    def join(self, request: LiveRequest) -> None:
        """It waits. O(log tenants)."""
        self.count += 1
        if request.attempts:
            self.retries[request.id] = request
            return
        asked = request.asked
        flow = self._flows.get(asked.tenant) or self._new_flow(asked.tenant)
        if not flow.requests:
            flow.turn += 1
            flow.tag = max(flow.tag, self.time)
            flow.carry = flow.tag - self.time
            flow.weight = asked.weight
            self.waiting += 1
            self.weight += asked.weight
            self._place(flow)
        flow.requests[request.id] = request
        self._lengths.grew(flow)

    def head(self) -> LiveRequest:
        """Who is next; only while somebody waits."""
        if self.retries:
            return next(iter(self.retries.values()))
        return next(iter(self._first().requests.values()))

    def serve(self, request: LiveRequest) -> float:
        """The head has been sent. What it was charged, as `cost` counts; 0 for a retry."""
        if self.retries.pop(request.id, None) is not None:
            self.count -= 1
            self._rest()
            return 0.0
        flow = self._first()
        if flow.tag > self.time:
            self.time = flow.tag
        charge = cost(request.prompt, request.output)
        flow.tag += charge / flow.weight
        request.flow, request.turn = flow, flow.turn
        if len(flow.requests) > 1:
            self._number += 1
            flow.entry = (flow.tag, self._number, flow)
            heapreplace(self._heap, flow.entry)
        self._remove(flow, request.id)
        return charge

    def drop(self, request: LiveRequest) -> bool:
        """It waits no more and was not served. False if it is not here."""
        if self.retries.pop(request.id, None) is not None:
            self.count -= 1
            self._rest()
            return True
        flow = self._flows.get(request.asked.tenant)
        if flow is None or request.id not in flow.requests:
            return False
        self._remove(flow, request.id)
        return True

    def settle(self, request: LiveRequest, output: int) -> None:
        """What `serve` charged was an estimate; `output` tokens have come.

        A charge of before the tenant's last return counts as far as it still stands above the time of that return:
        what it has been idle for is not given back to it.
        """
        flow = request.flow
        if flow is None or self._flows.get(flow.tenant) is not flow:
            return  # nobody has waited in between: everything began anew
        wrong = (output - request.output) * DECODE_PER_REQUEST / flow.weight
        if wrong < 0.0 and request.turn != flow.turn:
            wrong = max(wrong, -flow.carry)
            flow.carry += wrong
        flow.tag += wrong
        if flow.requests:
            self._place(flow)

    def longest(self) -> Flow | None:
        """The tenant with most requests here, retries aside."""
        return self._lengths.longest()

    def length(self, tenant: str) -> int:
        """Its requests here, retries aside."""
        flow = self._flows.get(tenant)
        return 0 if flow is None else len(flow.requests)

    def by_tenant(self) -> dict[str, int]:
        """Requests of each tenant that waits. O(tenants + retries)."""
        counts = {tenant: len(flow.requests) for tenant, flow in self._flows.items() if flow.requests}
        for request in self.retries.values():
            tenant = request.asked.tenant
            counts[tenant] = counts.get(tenant, 0) + 1
        return counts

    @property
    def entries(self) -> int:
        """Heap entries and flows in memory, stale and idle ones included."""
        return len(self._heap) + len(self._flows)

    def _entry(self, flow: Flow) -> Entry:
        self._number += 1  # of equal tags, the one that has had it for longest
        return flow.tag, self._number, flow

    def _first(self) -> Flow:
        heap = self._heap
        while True:
            flow = heap[0][2]
            if flow.entry is heap[0]:
                return flow
            heappop(heap)

    def _place(self, flow: Flow) -> None:
        self._number += 1
        flow.entry = entry = (flow.tag, self._number, flow)
        heap = self._heap
        heappush(heap, entry)
        if len(heap) > STALE_FACTOR * self.waiting + SPARE:
            self._heap = [flow.entry for flow in self._flows.values() if flow.entry is not None]
            heapify(self._heap)

    def _remove(self, flow: Flow, request: int) -> None:
        del flow.requests[request]
        self.count -= 1
        self._lengths.shrank(flow)
        if flow.requests:
            return
        flow.entry = None
        self.waiting -= 1
        self.weight -= flow.weight
        self._rest()

    def _rest(self) -> None:
        """With nobody waiting there is nothing to share: what was charged is forgotten."""
        if not self.count:
            self._flows.clear()
            self._heap.clear()
            self.weight = 0.0  # no sum of rounding errors

    def _new_flow(self, tenant: str) -> Flow:
        if len(self._flows) >= self._most_flows:
            self._flows = {name: flow for name, flow in self._flows.items() if flow.requests or flow.tag > self.time}
            self._most_flows = STALE_FACTOR * len(self._flows) + SPARE
        flow = self._flows[tenant] = Flow(tenant, self.time)
        return flow
