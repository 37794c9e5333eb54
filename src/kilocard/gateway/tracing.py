"""Which requests are traced, and what becomes of their trails: spans, made and sent by a thread of their own.

On the event loop a traced request costs its ids, its trail and one append. The queue is bounded; where the collector is
down or too slow, traces are dropped and counted, and nobody waits.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kilocard.gateway.heads import RequestHead
from kilocard.gateway.trail import Trace, Trail
from kilocard.metrics import names
from kilocard.metrics.render import Registry
from kilocard.tenancy.usage import Tokens
from kilocard.wire.trace import SAMPLED, TraceParent, parse, unsampled

if TYPE_CHECKING:
    from kilocard.gateway.exchange import Exchange
    from kilocard.gateway.plane import Plane

log = logging.getLogger("kilocard.gateway")

#: traced requests that may wait to be sent
QUEUE = 8192
#: requests sent in one go: few, since the event loop may wait while a batch is encoded (some ms)
BATCH = 32
#: seconds between two looks at the queue
EVERY = 0.5
#: seconds to send what is left at the end
AT_THE_END = 5.0


class Traced(NamedTuple):
    """A request that has ended, for whoever makes spans of it. Times are seconds on the plane's clock."""

    trail: Trail
    path: str
    model: str
    tenant: str
    stream: bool
    request_id: str
    arrived: float
    #: of a stream; 0: not seen
    content_at: float
    ended: float
    held_s: float
    status: int
    outcome: str
    code: str
    used: Tokens
    #: what a monotonic time has to be added to to be Unix seconds
    epoch: float
    #: address of each attempt's replica, of those beside too; "" where it is gone
    addresses: tuple[str, ...]


class Exporter(Protocol):
    """Makes spans and sends them. Called on the tracing thread; may block."""

    #: the collector, as people are told of it
    where: str

    def export(self, batch: Sequence[Traced]) -> bool:
        """False where the collector did not take it."""

    def close(self) -> None: ...


class Tracing:
    """A part of the gateway (parts.py). `sample`: share of the requests without a traced parent."""

    def __init__(self, exporter: Exporter, sample: float, plane: Plane, registry: Registry, rng: Random) -> None:
        self._exporter = exporter
        self._sample = sample
        self._random = rng.random
        self._bits = rng.getrandbits
        self._queue: deque[Traced] = deque()
        self._dropped_here = self._dropped_there = self._sent_there = 0
        counter = registry.counter(names.TRACES)
        self._sent, self._dropped = counter.labels("sent"), counter.labels("dropped")
        registry.before_page.append(self._count)
        self._stopping = threading.Event()
        #: when what is left has had its time
        self._end = 0.0
        self._thread = threading.Thread(target=self._run, name="tracing", daemon=True)
        self._troubled = False
        plane.tracing = self
        plane.on_end.append(self.ended)

    async def start(self) -> None:
        self._thread.start()

    async def close(self) -> None:
        """Send what is left, for a few seconds at most."""
        self._end = time.monotonic() + AT_THE_END
        self._stopping.set()
        if self._thread.is_alive():
            await asyncio.to_thread(self._thread.join, AT_THE_END)
        self._exporter.close()

    # -- on the event loop

    def begin(self, head: RequestHead) -> Trace | None:
        """None where this request is not traced."""
        given = head.traceparent
        if given is not None and unsampled(given):
            return None
        parent = None if given is None else parse(given)
        if parent is not None:
            span = TraceParent(parent.trace_id, self.new_id(), parent.flags)
        elif self._random() < self._sample:
            span = TraceParent(self._bits(128) or 1, self.new_id(), SAMPLED)
        else:
            return None
        forward = _without_trace(head.forward, state=parent is not None)
        return Trace(span, parent, forward, self.new_id)

    def new_id(self) -> int:
        return self._bits(64) or 1

    def ended(self, exchange: Exchange, outcome: str, now: float) -> None:
        trail = exchange.trail
        if trail is None or trail.trace is None:
            return
        if len(self._queue) >= QUEUE:
            self._dropped_here += 1
            return
        inbound = exchange.inbound
        targets = exchange.plane.targets
        found = (targets.get(attempt.send.replica) for attempt in (*trail.attempts, *trail.beside))
        self._queue.append(
            Traced(
                trail,
                inbound.route.path,
                inbound.model,
                inbound.tenant.name,
                inbound.stream,
                exchange.client.request_id.decode("ascii", "replace"),
                exchange.arrived,
                exchange.content_at,
                now,
                exchange.held_seconds if trail.attempts else now - exchange.arrived,
                exchange.status,
                outcome,
                exchange.code,
                exchange.used,
                time.time() - now,  # noqa: TID251  # collectors want wall-clock times
                tuple("" if target is None else target.endpoint.url for target in found),
            )
        )

    # -- on the thread

    def _run(self) -> None:
        while not self._stopping.wait(EVERY):
            self._drain(lambda: self._stopping.is_set())
        self._drain(lambda: time.monotonic() > self._end)
        self._dropped_there += len(self._queue)

    def _drain(self, enough: Callable[[], bool]) -> None:
        queue = self._queue
        while queue and not enough():
            batch = [queue.popleft() for _ in range(min(BATCH, len(queue)))]
            try:
                taken = self._exporter.export(batch)
            except Exception:
                log.exception("traces could not be made: a fault of kilocard")
                taken = False
            if taken:
                self._sent_there += len(batch)
            else:
                self._dropped_there += len(batch)
            if taken is self._troubled:
                self._troubled = not taken
                if taken:
                    log.info("traces: the collector takes them again")
                else:
                    log.warning(
                        "traces are dropped: %s does not take them. Is gateway.tracing.endpoint a collector's OTLP "
                        "address for HTTP (port 4318 mostly), and is it up?",
                        self._exporter.where,
                    )

    def _count(self) -> None:
        self._sent.value = self._sent_there
        self._dropped.value = self._dropped_here + self._dropped_there


def _without_trace(forward: bytes, *, state: bool) -> bytes:
    """A client's header lines without `traceparent`, and without `tracestate` unless `state`."""
    names = (b"traceparent",) if state else (b"traceparent", b"tracestate")
    if b"trace" not in forward.lower():  # most have neither
        return forward
    lines = forward.split(b"\r\n")
    return b"\r\n".join(line for line in lines if line[: line.find(b":")].lower() not in names)
