"""What is counted for each request and token: series that only add up."""

from __future__ import annotations

from bisect import bisect_left


class Counter:
    """Only rises. `value` may be read at any time."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: int | float = 0

    def inc(self, amount: int | float = 1) -> None:
        """`amount` must not be negative; it is not checked, since this is on the path of every request."""
        self.value += amount


class Histogram:
    """`observe(v)` counts v in the first bucket whose upper bound is at least v."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        #: per bucket, not cumulative; the last is +Inf
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value
