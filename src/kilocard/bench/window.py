"""What is measured of all that was sent: when a window opens and closes, and which requests count. Pure.

Closed loop. The first request of each slot is warm-up: all start at the same moment on an idle server, which no later
one does. The window opens when the last of them has ended, and closes after its seconds (or requests), but not before
as many requests have ended in it as there are slots. A request counts if it ends inside the window: as many begin
before it opens as run on past its close, so neither short nor long ones are preferred. What still runs then is cut
off, and only the tokens that it delivered within the window count, as part of the throughput.

Open loop. The first arrivals are warm-up, until the server is as full as it will be. The window opens after them and
closes after its seconds; each arrival in it counts, however long its answer takes. Arrivals go on until the last of
those has ended, so that all see the same load; what has not ended `drain_s` after the close is cut off and counted.

All times are seconds on the records' clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from kilocard.bench.record import CUT_OFF, RequestRecord

#: a closed loop's window grows up to so many times its seconds while requests take that long
LONGEST = 4.0


class Window(Protocol):
    #: requests that count, in the order in which they ended
    measured: list[RequestRecord]
    #: requests that ran within the window and do not count: their tokens are throughput, their latencies nothing
    carried: list[RequestRecord]
    #: requests before the window
    warmup: int

    def ended(self, record: RequestRecord, now: float) -> None:
        """One request has ended, well or not or cut off."""

    def is_over(self, now: float, oldest_s: float) -> bool:
        """`oldest_s`: when the request in flight that is the oldest was intended; infinity: none is in flight."""

    def close(self, now: float) -> None:
        """Earlier than it would by itself: the user or a limit of time says so."""

    @property
    def bounds(self) -> tuple[float, float]:
        """Opened and closed. Both the same when it never opened."""


@dataclass(slots=True)
class SteadyWindow:
    """Of a closed loop. Exactly one of `seconds` and `requests` says how much is measured."""

    slots: int
    begun_s: float
    seconds: float | None = None
    requests: int | None = None
    #: a slot whose first request has not ended after so long holds nobody up any more
    patience_s: float = 120.0
    measured: list[RequestRecord] = field(default_factory=list)
    carried: list[RequestRecord] = field(default_factory=list)
    warmup: int = 0
    opened_s: float | None = None
    closed_s: float | None = None
    _first_end_s: float | None = None
    _first_left: int = field(init=False)

    def __post_init__(self) -> None:
        self._first_left = self.slots

    def ended(self, record: RequestRecord, now: float) -> None:
        if self._first_end_s is None:
            self._first_end_s = now
        # a slot asks again only when its request has ended: what was asked before the first end are the first requests
        is_first = record.intended_s < self._first_end_s
        self._first_left -= is_first
        if self.opened_s is None:
            self.warmup += 1
            if not self._first_left:
                self.opened_s = now
        elif is_first or record.error == CUT_OFF or self.closed_s is not None:
            self.carried.append(record)
        else:
            self.measured.append(record)
            if len(self.measured) == self.requests:
                self.closed_s = now

    def is_over(self, now: float, oldest_s: float = 0.0) -> bool:
        if self.opened_s is None:
            if now - self.begun_s < self.patience_s:
                return False
            self.opened_s = now
        if self.closed_s is None and self._has_enough(now - self.opened_s):
            self.closed_s = now
        return self.closed_s is not None

    def _has_enough(self, open_s: float) -> bool:
        if self.seconds is None:
            return False
        return open_s >= self.seconds and (len(self.measured) >= self.slots or open_s >= LONGEST * self.seconds)

    def close(self, now: float) -> None:
        self.closed_s = self.closed_s or now

    @property
    def bounds(self) -> tuple[float, float]:
        closed = self.closed_s or 0.0
        return (closed if self.opened_s is None else self.opened_s), closed


@dataclass(slots=True)
class ArrivalWindow:
    """Of an open loop or a trace: requests intended for [opens_s, closes_s). A trace closes with its last arrival."""

    opens_s: float
    closes_s: float
    drain_s: float
    measured: list[RequestRecord] = field(default_factory=list)
    carried: list[RequestRecord] = field(default_factory=list)
    warmup: int = 0
    #: set when it was closed early: later arrivals do not count then
    closed_s: float | None = None

    def ended(self, record: RequestRecord, now: float) -> None:
        if record.intended_s < self.opens_s:
            self.warmup += 1
            if now >= self.opens_s:
                self.carried.append(record)
        elif record.intended_s < self.bounds[1]:
            self.measured.append(record)

    def is_over(self, now: float, oldest_s: float) -> bool:
        if self.closed_s is not None or now >= self.closes_s + self.drain_s:
            return True
        return now >= self.closes_s and oldest_s >= self.closes_s

    def close(self, now: float) -> None:
        if now < self.closes_s:
            self.closed_s = max(now, self.opens_s)

    @property
    def bounds(self) -> tuple[float, float]:
        return self.opens_s, self.closes_s if self.closed_s is None else self.closed_s
