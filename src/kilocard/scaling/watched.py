"""What `threshold` watches: a gauge averaged over replicas, or how long the last minute's slowest requests took."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from kilocard.core.signals import Histogram, ReplicaSignals, quantile
from kilocard.scaling.readings import Change, Readings
from kilocard.scaling.view import View, per

Gauge = Callable[[ReplicaSignals], float | None]
#: seconds that times look back on, and the share of the requests that took no longer
LOOK_BACK_S, SHARE = 60.0, 0.95


@dataclass(frozen=True, slots=True)
class Observed:
    """`low` is what is certain, `high` what is possible. `doubt`: why nothing may be removed; "" where it may."""

    low: float
    high: float
    said: str
    doubt: str = ""
    #: what is on its way will change it, so it is no reason for more yet
    unsettled: bool = False


class Watch(Protocol):
    def look(self, now: float, view: View) -> Observed:
        """At every look."""


def _in_flight(replica: ReplicaSignals) -> float | None:
    if replica.running is None:
        return None
    return max(float(replica.in_flight), replica.running + (replica.waiting or 0.0))


GAUGES: Mapping[str, Gauge] = {
    "waiting": lambda replica: replica.waiting,
    "in_flight": _in_flight,
    "kv_usage": lambda replica: replica.kv_usage,
}
_WORDS = {
    "waiting": "requests wait per replica",
    "in_flight": "requests are in flight per replica",
    "kv_usage": "of the KV cache is used",
}


class Average:
    """The average counts replicas that load, since they will serve; requests held in the gateway count as waiting.

    What is unknown is not counted for growing, and counts as `full` for shrinking.
    """

    def __init__(self, signal: str, full: float) -> None:
        self._signal = signal
        self._gauge = GAUGES[signal]
        self._full = full

    def look(self, now: float, view: View) -> Observed:
        silent = view.silent(self._gauge)
        held = view.signals.held if view.signals is not None and self._signal != "kv_usage" else 0.0
        known = sum(self._gauge(each) or 0.0 for each in view.ready if each not in silent) + held
        doubt = ""
        if view.signals is None:
            doubt = "no gateway tells of this pool"
        elif not view.believed(self._gauge):
            doubt = f"{len(silent)} of {len(view.ready)} replicas do not say their {self._signal}"
        low = per(known, view.serving)
        return Observed(
            low, per(known + len(silent) * self._full, view.serving), f"{low:.3g} {_WORDS[self._signal]}", doubt
        )


class Times:
    """The 95th percentile of the last minute, as the upper bound of its bucket; at least as old as the oldest that
    still waits. No request is no time.
    """

    def __init__(self, signal: str) -> None:
        self._signal = signal
        self._readings = Readings(2 * LOOK_BACK_S)

    def look(self, now: float, view: View) -> Observed:
        signals = view.signals
        if signals is None:
            return Observed(0.0, 0.0, "nothing is known", "no gateway tells of this pool")
        self._readings.add(now, signals)
        change = self._readings.over(LOOK_BACK_S)
        what = "to the first token" if self._signal == "ttft" else "in the gateway's queue"
        oldest = signals.held_oldest_s
        if change is None:
            said = f"{oldest:.3g} s {what}"
            return Observed(oldest, oldest, said, "the last minute is not known yet", bool(view.coming))
        seconds = max(oldest, quantile(self._counts(change), SHARE) or 0.0)
        return Observed(seconds, seconds, f"{seconds:.3g} s {what} (p95)", "", bool(view.coming))

    def _counts(self, change: Change) -> Histogram:
        if self._signal == "ttft":
            return change.first_token
        # who was not held is not in the histogram: no wait at all
        direct = max(0, round(change.arrived) - sum(change.hold))
        return (change.hold[0] + direct, *change.hold[1:])


def watch(signal: str, full: float) -> Watch:
    """By the cluster file's word."""
    return Average(signal, full) if signal in GAUGES else Times(signal)
