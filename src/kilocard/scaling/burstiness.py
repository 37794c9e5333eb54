"""How uneven arrivals are: the variance of their counts over the mean (1 for Poisson)."""

from __future__ import annotations

from collections import deque

from kilocard.core.statistics import deviation, mean

#: seconds of one count, and how many are looked at: five minutes
WINDOW_S, WINDOWS = 10.0, 30
#: fewer counts say nothing yet
ENOUGH = 6


class Burstiness:
    """Counts of arrivals by windows. A new history of the counter begins a new window."""

    def __init__(self) -> None:
        self._counts: deque[float] = deque(maxlen=WINDOWS)
        self._begun: tuple[float, float] | None = None

    def look(self, now: float, arrived: float) -> None:
        """Once a second or so, with the counter."""
        if self._begun is None or arrived < self._begun[1]:
            self._begun = (now, arrived)
        elif (seconds := now - self._begun[0]) >= WINDOW_S:
            self._counts.append((arrived - self._begun[1]) * WINDOW_S / seconds)
            self._begun = (now, arrived)

    @property
    def ratio(self) -> float:
        """Variance over mean; 1 until enough is known."""
        if len(self._counts) < ENOUGH or not (middle := mean(self._counts)):
            return 1.0
        return deviation(self._counts) ** 2 / middle
