"""How much work one replica does in a second, learned from times in which replicas had all they could take."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from kilocard.core.statistics import of_sorted
from kilocard.scaling.readings import Readings
from kilocard.scaling.view import View
from kilocard.scaling.work import done

#: seconds of one sample, and samples that are remembered
SAMPLE_S, SAMPLES = 20.0, 24
#: a replica had all that it could take while so many requests waited for each
FULL = 1.0
#: a new replica's share of the traffic rises for so long (models.slow_start); it is not measured then
WARM_S = 15.0
#: of the samples in order, at this share: a stretch may have had gaps that nobody saw, so most samples are too low
PLACE = 0.7


class Speed:
    """Work a second of one replica. None: not seen yet, and nobody said."""

    def __init__(self) -> None:
        self._samples: deque[float] = deque(maxlen=SAMPLES)
        self._since: float | None = None
        self._replicas = 0
        self._sampled = float("-inf")

    def look(self, now: float, view: View, readings: Readings) -> None:
        """Take a sample where the last seconds give one."""
        ready = len(view.ready)
        signals = view.signals
        if signals is None or not ready or ready != self._replicas or any(each.since_s < WARM_S for each in view.ready):
            self._replicas, self._since = ready, None
            return
        waiting = signals.held + sum(each.waiting or 0.0 for each in view.ready)
        full = waiting >= FULL * ready
        self._since = (now if self._since is None else self._since) if full else None
        if now - self._sampled < SAMPLE_S:
            return
        change = readings.over(SAMPLE_S)
        if change is None:
            return
        rate = done(change) / change.seconds / ready
        if self._since is not None and now - self._since >= SAMPLE_S and rate > 0:
            self._samples.append(rate)
            self._sampled = now
        elif (known := self.rate) is not None and rate > known:
            # more than was thought possible, though they were not even full
            self._samples.append(rate)
            self._sampled = now

    @property
    def rate(self) -> float | None:
        """Work a second."""
        return of_sorted(sorted(self._samples), PLACE) if self._samples else None

    @property
    def samples(self) -> int:
        """How many it is made of."""
        return len(self._samples)

    def snapshot(self) -> list[float]:
        """As JSON data."""
        return [round(each, 3) for each in self._samples]

    def restore(self, saved: Mapping[str, Any]) -> None:
        """From `speed` of what was saved."""
        values = saved.get("speed")
        if isinstance(values, list):
            self._samples.extend(float(each) for each in values if isinstance(each, int | float) and 0 < each < 1e12)
