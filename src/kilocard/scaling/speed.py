"""How much work one replica does in a second, learned from times in which replicas had all they could take."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from kilocard.core.statistics import of_sorted
from kilocard.scaling.readings import Readings
from kilocard.scaling.saved import numbers
from kilocard.scaling.view import View
from kilocard.scaling.work import done

#: seconds of one sample (the first may be shorter: any number is better than none), and samples that are remembered
SAMPLE_S, FIRST_S, SAMPLES = 20.0, 10.0, 24
#: a replica had all that it could take while so many requests waited for each
FULL = 1.0
#: a new replica's share of the traffic rises for about so long (models.slow_start), and its first answers have not
#: ended: no sample is taken while that is so of more than half
WARM_S = 10.0
#: of the samples in order, at this share: a stretch may have had gaps that nobody saw, so most samples are too low
PLACE = 0.7


class Speed:
    """Work a second of one replica. None: not seen yet, and nobody said."""

    def __init__(self) -> None:
        self._samples: deque[float] = deque(maxlen=SAMPLES)
        #: of the sample that is being taken: when it began, replica-seconds so far, whether all were full all the time
        self._begun: float | None = None
        self._replica_seconds = 0.0
        self._full = True
        self._looked = 0.0

    def look(self, now: float, view: View, readings: Readings) -> None:
        """Once a second or so. Takes a sample where the last seconds give one."""
        ready, signals = view.ready, view.signals
        if signals is None or 2 * sum(each.since_s >= WARM_S for each in ready) < max(1, len(ready)):
            self._begun = None
            return
        waiting = signals.held + sum(each.waiting or 0.0 for each in ready)
        full = waiting >= FULL * len(ready)
        if self._begun is None or (full and not self._full):
            self._begin(now, full)
            return
        self._replica_seconds += len(ready) * (now - self._looked)
        self._looked = now
        self._full = self._full and full
        if now - self._begun < (SAMPLE_S if self._samples else FIRST_S):
            return
        change = readings.over(now - self._begun)
        if change is not None and self._replica_seconds > 0:
            rate = done(change) / self._replica_seconds
            known = self.rate
            # the second: more than was thought possible, though they were not even full
            if rate > 0 and (self._full or (known is not None and rate > known)):
                self._samples.append(rate)
        self._begin(now, full)

    def _begin(self, now: float, full: bool) -> None:
        self._begun = self._looked = now
        self._replica_seconds = 0.0
        self._full = full

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
        self._samples.extend(each for each in numbers(saved.get("speed")) if each > 0)
