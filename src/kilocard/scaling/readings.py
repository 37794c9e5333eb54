"""What gateways told of one pool in the last minutes, and the differences between then and now."""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

from kilocard.core.signals import Histogram, PoolSignals

#: readings are kept no closer than this, seconds
STEP_S = 1.0
#: and thrown away in so large lots
LOT = 256


class Change(NamedTuple):
    """Differences over `seconds`; histograms as counts by bucket."""

    seconds: float
    arrived: float
    prompt_tokens: float
    finished: float
    output_tokens: float
    refused: float
    first_token: Histogram
    hold: Histogram

    @property
    def answered(self) -> float:
        """Requests whose prompt was computed. Answers that are not streamed have no first token, only an end."""
        return max(float(sum(self.first_token)), self.finished)


class Readings:
    """Counters that went down, or readings of other processes, begin a new history: no difference is known then."""

    def __init__(self, keep_s: float) -> None:
        self._keep_s = keep_s
        self._times: list[float] = []
        self._readings: list[PoolSignals] = []

    def add(self, now: float, signals: PoolSignals) -> None:
        """`now` when it came; it was true `age_s` earlier."""
        at = now - signals.age_s
        if self._times:
            last = self._readings[-1]
            if last.sources != signals.sources or _fell(last, signals):
                self._times.clear()
                self._readings.clear()
            elif at < self._times[-1] + STEP_S:
                return
        self._times.append(at)
        self._readings.append(signals)
        old = bisect_left(self._times, at - self._keep_s)
        if old > LOT:
            del self._times[:old], self._readings[:old]

    @property
    def span_s(self) -> float:
        """From the oldest reading to the newest."""
        return self._times[-1] - self._times[0] if self._times else 0.0

    @property
    def latest(self) -> PoolSignals | None:
        """The newest reading."""
        return self._readings[-1] if self._readings else None

    def over(self, seconds: float, back: float = 0.0) -> Change | None:
        """The `seconds` that ended `back` seconds before the newest reading, give or take STEP_S. None: not known."""
        times = self._times
        if not times or times[-1] - times[0] < seconds + back - STEP_S:
            return None
        end = min(len(times) - 1, bisect_left(times, times[-1] - back))
        start = bisect_left(times, times[end] - seconds)
        span = times[end] - times[start]
        if span <= 0:
            return None
        a, b = self._readings[start], self._readings[end]
        return Change(
            span,
            b.arrived - a.arrived,
            b.prompt_tokens - a.prompt_tokens,
            b.finished - a.finished,
            b.output_tokens - a.output_tokens,
            b.refused - a.refused,
            _minus(b.first_token, a.first_token),
            _minus(b.hold, a.hold),
        )


def _minus(after: Histogram, before: Histogram) -> Histogram:
    return tuple(new - old for new, old in zip(after, before, strict=True))


def _fell(before: PoolSignals, after: PoolSignals) -> bool:
    return (
        after.arrived < before.arrived
        or after.prompt_tokens < before.prompt_tokens
        or after.finished < before.finished
        or after.output_tokens < before.output_tokens
        or after.refused < before.refused
        or min(_minus(after.first_token, before.first_token)) < 0
        or min(_minus(after.hold, before.hold)) < 0
    )
