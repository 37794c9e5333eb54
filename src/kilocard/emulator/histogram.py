"""A Prometheus histogram that is cheap to feed many equal values."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator


class Histogram:
    __slots__ = ("_counts", "bounds", "count", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.count = 0
        self.sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        self._counts[bisect_left(self.bounds, value)] += times
        self.count += times
        self.sum += value * times

    def buckets(self) -> Iterator[tuple[str, int]]:
        """(le, requests at or under it), ending with +Inf."""
        total = 0
        for bound, count in zip(self.bounds, self._counts, strict=False):
            total += count
            yield str(float(bound)), total
        yield "+Inf", self.count
