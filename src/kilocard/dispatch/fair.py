"""What comes free is shared by cost: tenants of a priority class by their weights, a tenant's sizes by SHARES.

Both are the same start-time fair queueing (turns.py). What a tenant gets is decided among the tenants alone; its sizes
share out what it got, so that its short requests do not wait behind its long ones.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from kilocard.dispatch.lengths import Lengths
from kilocard.dispatch.request import LiveRequest
from kilocard.dispatch.turns import Flow, Turns
from kilocard.routing.queue_depth import DECODE_PER_REQUEST, PREFILL_PER_REQUEST

#: each size is up to four times as dear as the one before: below a cost of 4, 16, 64, 256, and all above
SIZES = ("XS", "S", "M", "L", "XL")
#: a size's share is half that of the one before. With equal shares a few long requests would overtake the many short
#: ones that came before them, and p95 of all would be higher than first come, first served (benchmarks/README.md)
SHARES = {"XS": 16.0, "S": 8.0, "M": 4.0, "L": 2.0, "XL": 1.0}


def cost(prompt: int, output: int) -> float:
    """What a request takes, in requests: its place, its prompt and its output as the load index weighs them."""
    return 1.0 + PREFILL_PER_REQUEST * prompt + DECODE_PER_REQUEST * output


def size(cost: float) -> str:
    """Of SIZES. Two bits of the cost are one step."""
    return SIZES[min((int(cost).bit_length() - 1) >> 1, 4)]


class Line:
    """Who waits in one priority class of one queue: retries first, then tenants by fair share."""

    __slots__ = ("_lengths", "_tenants", "count", "retries", "tag")

    def __init__(self) -> None:
        #: requests
        self.count = 0
        #: those that were sent once and failed: paid already, and longest under way
        self.retries: OrderedDict[int, LiveRequest] = OrderedDict()
        #: this line's own tag among the lines that share a pool (see waiting.py)
        self.tag = 0.0
        self._tenants = Turns()
        self._lengths = Lengths()

    def join(self, request: LiveRequest) -> None:
        """It waits. O(log tenants)."""
        self.count += 1
        if request.attempts:
            self.retries[request.id] = request
            return
        asked = request.asked
        tenant = self._tenants.join(asked.tenant, asked.weight, request)
        sizes = tenant.within
        if sizes is None:
            sizes = tenant.within = Turns()
        own = size(cost(request.prompt, request.output))
        sizes.join(own, SHARES[own], request)
        self._lengths.grew(tenant)

    def head(self) -> LiveRequest:
        """Who is next; only while somebody waits."""
        if self.retries:
            return next(iter(self.retries.values()))
        tenant = self._tenants.first()
        return next(iter(_sizes(tenant).first().requests.values()))

    def serve(self, request: LiveRequest) -> float:
        """The head has been sent. What it was charged, as `cost` counts; 0 for a retry."""
        if self.retries.pop(request.id, None) is not None:
            self._one_less()
            return 0.0
        tenant = self._tenants.first()
        sizes = _sizes(tenant)
        charge = cost(request.prompt, request.output)
        own = sizes.serve(sizes.first(), request, charge)
        request.bills = self._tenants.serve(tenant, request, charge), own
        self._left(tenant)
        return charge

    def drop(self, request: LiveRequest) -> bool:
        """It waits no more and was not served. False if it is not here."""
        if self.retries.pop(request.id, None) is not None:
            self._one_less()
            return True
        tenant = self._tenants.get(request.asked.tenant)
        if tenant is None or request.id not in tenant.requests:
            return False
        sizes = _sizes(tenant)
        own = sizes.get(size(cost(request.prompt, request.output)))
        assert own is not None
        sizes.leave(own, request)
        self._tenants.leave(tenant, request)
        self._left(tenant)
        return True

    def settle(self, request: LiveRequest, output: int) -> None:
        """What `serve` charged was an estimate; `output` tokens have come."""
        if request.bills is None:
            return
        wrong = (output - request.output) * DECODE_PER_REQUEST
        bill, own = request.bills
        if self._tenants.correct(bill, wrong) and (sizes := bill[0].within) is not None:
            sizes.correct(own, wrong)

    def longest(self) -> Flow | None:
        """The tenant with most requests here, retries aside."""
        return self._lengths.longest()

    def length(self, tenant: str) -> int:
        """Its requests here, retries aside."""
        flow = self._tenants.get(tenant)
        return 0 if flow is None else len(flow.requests)

    def spread(self, tenant: str, by: int) -> None:
        """It waits in so many queues more of the same pools (below 0: fewer)."""
        flow = self._tenants.get(tenant)
        if flow is not None and flow.requests:
            self._tenants.spread(flow, max(1, flow.queues + by))

    def gather(self) -> list[str]:
        """Tenants that wait, retries aside, each with its whole weight from now on."""
        flows = self._tenants.flows()
        for flow in flows:
            self._tenants.spread(flow, 1)
        return [flow.name for flow in flows]

    def by_tenant(self) -> dict[str, int]:
        """Requests of each tenant that waits. O(tenants + retries)."""
        counts = {flow.name: len(flow.requests) for flow in self._tenants.flows()}
        for request in self.retries.values():
            tenant = request.asked.tenant
            counts[tenant] = counts.get(tenant, 0) + 1
        return counts

    def requests(self) -> Iterator[LiveRequest]:
        """All that wait here, in no order."""
        yield from self.retries.values()
        for flow in self._tenants.flows():
            yield from flow.requests.values()

    @property
    def waiting(self) -> int:
        """Tenants that wait, retries aside."""
        return self._tenants.waiting

    @property
    def weight(self) -> float:
        """The sum of their weights."""
        return self._tenants.weight

    @property
    def entries(self) -> int:
        """Heap entries and flows in memory, stale and idle ones included."""
        return self._tenants.entries

    def _left(self, tenant: Flow) -> None:
        self._lengths.shrank(tenant)
        if not tenant.requests:
            _sizes(tenant).forget()
        self._one_less()

    def _one_less(self) -> None:
        self.count -= 1
        if not self.count:
            self._tenants.forget()


def _sizes(tenant: Flow) -> Turns:
    sizes = tenant.within
    assert sizes is not None  # since its first request
    return sizes
