"""What happened to one request, step by step, for a client that asks (receipt.py) or a collector (tracing.py).

Most requests have none: their exchange's `trail` is None, and that is all they pay.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kilocard.core.errors import KilocardError
from kilocard.dispatch.events import Event, Failed
from kilocard.dispatch.explain import Explanation, explain
from kilocard.dispatch.instructions import Send
from kilocard.gateway.receipt import receipt
from kilocard.wire.trace import TraceParent, parse

if TYPE_CHECKING:
    from kilocard.gateway.exchange import Exchange
    from kilocard.gateway.plane import Plane
    from kilocard.gateway.request import Inbound
    from kilocard.gateway.target import Target


#: replicas that would have been next, in a receipt
ALTERNATIVES = 8


class Attempt:
    """One replica's try. Times are the plane's clock."""

    __slots__ = ("ended_at", "fault", "hedge", "send", "sent_at", "span_id", "status")

    def __init__(self, send: Send, now: float, *, hedge: bool = False) -> None:
        self.send = send
        self.sent_at = now
        #: it began beside another one
        self.hedge = hedge
        #: 0: it runs, or was the last
        self.ended_at = 0.0
        self.fault = ""
        self.status: int | None = None
        self.span_id = 0


class Trace:
    """A traced request: its span, whom that hangs on, and what each attempt's replica is told."""

    __slots__ = ("_forward", "_new_id", "parent", "span")

    def __init__(
        self, span: TraceParent, parent: TraceParent | None, forward: bytes, new_id: Callable[[], int]
    ) -> None:
        self.span = span
        self.parent = parent
        self._forward = forward
        self._new_id = new_id

    def begin(self, attempt: Attempt) -> None:
        attempt.span_id = self._new_id()

    def lead_on(self, inbound: Inbound, attempt: Attempt) -> None:
        """The replica's span hangs on the attempt's, not on the client's."""
        line = self.span._replace(span_id=attempt.span_id).header()
        inbound.head = inbound.head._replace(forward=b"%btraceparent: %b\r\n" % (self._forward, line))


class Trail:
    __slots__ = (
        "_held_at", "_receipt", "_second", "_waited", "attempts", "beside", "code", "hedge", "holds", "trace",
        "wants_receipt", "why",
    )  # fmt: skip

    def __init__(self, wants_receipt: bool, trace: Trace | None) -> None:
        self.wants_receipt = wants_receipt
        self.trace = trace
        self.attempts: list[Attempt] = []
        #: second attempts that lost or failed: the answer has nothing of them
        self.beside: list[Attempt] = []
        #: the one that runs
        self._second: Attempt | None = None
        #: (when, why)
        self.holds: list[tuple[float, str]] = []
        #: of the error that refused it
        self.code = ""
        #: the second attempt beside the first
        self.hedge: Send | None = None
        #: of the last attempt, as things were when it was chosen; None: nobody asks
        self.why: Explanation | None = None
        self._receipt = b""
        #: since when it waits; 0: it does not
        self._held_at = 0.0
        self._waited = 0.0

    def waited(self, now: float) -> float:
        """Seconds in the gateway's queue, before the first attempt and between attempts."""
        return self._waited + (now - self._held_at if self._held_at else 0.0)

    # -- told by the plane, before the exchange acts on it

    def sent(self, exchange: Exchange, send: Send, event: Event) -> None:
        self._failed(event)
        second = self._second
        if second is not None and second.send is send:
            attempt, self._second = second, None
            self.attempts[-1].ended_at = event.now
        else:
            attempt = self._begun(Attempt(send, event.now))
        self._waited, self._held_at = self.waited(event.now), 0.0
        if self.wants_receipt:
            inbound, tried = exchange.inbound, [before.send.replica for before in self.attempts]
            fleet, tenant = exchange.plane.dispatcher.fleet, inbound.tenant.name
            self.why = explain(fleet, event.now, inbound.model, tenant, send, tried, ALTERNATIVES, inbound.prefix)
        self.attempts.append(attempt)
        if self.trace is not None:
            self.trace.lead_on(exchange.inbound, attempt)
        self._say(exchange, event.now)

    def hedged(self, exchange: Exchange, send: Send, event: Event) -> None:
        """A second attempt begins; `sent` follows if it becomes the only one, else `second_over`."""
        self.hedge = send
        self._second = self._begun(Attempt(send, event.now, hedge=True))
        self._say(exchange, event.now)

    def of_second(self, inbound: Inbound, target: Target, upstream_id: bytes) -> tuple[bytes, bytes]:
        """Its head and body. What the first attempt would say, were it to connect again, stays as it is."""
        first = inbound.head
        if self.trace is not None and self._second is not None:
            self.trace.lead_on(inbound, self._second)
        said = inbound.for_replica(target, upstream_id)
        inbound.head = first
        return said

    def second_over(self, now: float, fault: str = "", status: int | None = None) -> None:
        second, self._second = self._second, None
        if second is not None:
            second.ended_at, second.fault, second.status = now, fault, status
            self.beside.append(second)

    def held(self, exchange: Exchange, reason: str, event: Event) -> None:
        self._failed(event)
        self.holds.append((event.now, reason))
        self._held_at = self._held_at or event.now
        self._say(exchange, event.now)

    def refused(self, exchange: Exchange, error: KilocardError, event: Event) -> None:
        self._failed(event)
        self.code = exchange.told(error).code
        self._say(exchange, event.now)

    def _begun(self, attempt: Attempt) -> Attempt:
        if self.trace is not None:
            self.trace.begin(attempt)
        return attempt

    def _failed(self, event: Event) -> None:
        """The event that led here may be the end of the last attempt."""
        if isinstance(event, Failed) and self.attempts and not self.attempts[-1].ended_at:
            last = self.attempts[-1]
            if last.send.request == event.request:
                last.ended_at = event.now
                last.fault = event.fault.value
                last.status = event.status

    def _say(self, exchange: Exchange, now: float) -> None:
        """The receipt tells what is known when the response's head is written, so it is made anew at each step."""
        if self.wants_receipt:
            client = exchange.client
            before, self._receipt = self._receipt, receipt(exchange, self, now)
            client.headers = (client.headers.replace(before, b"") if before else client.headers) + self._receipt


def begin(plane: Plane, exchange: Exchange) -> None:
    """Give the exchange a trail if its client asks for a receipt, or its trace is wanted."""
    head = exchange.inbound.head
    wants_receipt = head.receipt and plane.spec.gateway.receipts
    trace = None if plane.tracing is None else plane.tracing.begin(head)
    if wants_receipt or trace is not None:
        exchange.trail = Trail(wants_receipt, trace)


def trace_id(exchange: Exchange) -> str:
    """32 hex digits: ours, or the client's where we do not trace; "" where there is no trace."""
    trail = exchange.trail
    if trail is not None and trail.trace is not None:
        return f"{trail.trace.span.trace_id:032x}"
    given = exchange.inbound.head.traceparent
    parent = None if given is None else parse(given)
    return "" if parent is None else f"{parent.trace_id:032x}"
