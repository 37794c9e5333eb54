"""Counters → rates, and how far a reading may be trusted at its age. Values in, values out; time is an argument."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple


class Reading(NamedTuple):
    """A counter's value at a time in seconds."""

    at: float
    value: float


def increase(before: float, after: float) -> float:
    """By how much a counter rose. A fall means that the engine restarted: it then rose from 0 to `after`."""
    return after - before if after >= before else after


def rate(before: Reading, after: Reading) -> float | None:
    """Per second between two readings. None where no time passed between them: unknown, not 0."""
    seconds = after.at - before.at
    if seconds <= 0.0:
        return None
    return increase(before.value, after.value) / seconds


class RateMeter:
    """The rate of one counter over a sliding window, fed by readings in the order of time.

    A missing reading (None) is skipped; the next one then spans the gap.
    """

    __slots__ = ("_readings", "window")

    def __init__(self, window: float = 10.0) -> None:
        #: seconds; older readings are dropped, save for the one that the window starts in
        self.window = window
        self._readings: list[Reading] = []

    def add(self, at: float, value: float | None) -> None:
        if value is None:
            return
        readings = self._readings
        if readings and at <= readings[-1].at:
            return  # the same scrape again
        readings.append(Reading(at, value))
        while len(readings) > 2 and readings[1].at <= at - self.window:
            del readings[0]

    def rate(self) -> float | None:
        """Per second over the window; None before the second reading. Restarts inside the window are seen."""
        readings = self._readings
        if len(readings) < 2:
            return None
        rise = sum(increase(a.value, b.value) for a, b in pairwise(readings))
        return rise / (readings[-1].at - readings[0].at)


def freshness(age: float, interval: float, *, periods: float = 5.0) -> float:
    """How much a scraped reading still counts: 1 up to one and a half scrape intervals, then falling evenly to
    0 at `periods` intervals. `age` and `interval` are seconds.

    The first and a half covers an ordinary scrape that is a little late. A reading of weight 0 is no reason to
    stop routing: own in-flight requests remain (gateways that refuse stale metrics turn 40 ms into seconds).
    """
    if interval <= 0.0:
        return 1.0 if age <= 0.0 else 0.0
    lapsed = age / interval
    return min(1.0, max(0.0, (periods - lapsed) / (periods - 1.5)))
