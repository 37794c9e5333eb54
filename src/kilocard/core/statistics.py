"""Percentiles and means, defined once: load tester, calibration, planner and simulator print the same ones.

A percentile is the linear interpolation between the two nearest values in order (type 7 of Hyndman and Fan; numpy's and
`statistics.quantiles(…, method="inclusive")`'s): the share q of n values lies at place q × (n − 1), counted from 0.
Shares are 0 to 1. An empty list has no percentile and no mean: ValueError, never 0 and never NaN.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence


def percentile(values: Iterable[float], share: float) -> float:
    """One percentile of values in any order. For several of the same values use `percentiles`: it sorts once."""
    return percentiles(values, (share,))[0]


def percentiles(values: Iterable[float], shares: Sequence[float]) -> list[float]:
    """The percentiles at `shares` (0.5 is the median), in their order."""
    ordered = sorted(values)
    return [of_sorted(ordered, share) for share in shares]


def of_sorted(ordered: Sequence[float], share: float) -> float:
    """The percentile of values that are sorted already. It can't see if they are not."""
    if not ordered:
        raise ValueError("no values, so no percentile")
    if not 0 <= share <= 1:
        raise ValueError(f"{share} is no share: 0.99 is the 99th percentile")
    place = share * (len(ordered) - 1)
    below = int(place)
    low = ordered[below]
    part = place - below
    # Without the branch infinities would make NaN, and the last value has nothing above it.
    return low if part == 0 or ordered[below + 1] == low else low + (ordered[below + 1] - low) * part


def mean(values: Iterable[float]) -> float:
    """Summed without rounding errors that grow with the count."""
    held = values if isinstance(values, Sequence) else list(values)
    if not held:
        raise ValueError("no values, so no mean")
    return math.fsum(held) / len(held)


def weighted_mean(values: Sequence[float], weights: Sequence[float]) -> float:
    """Weights are 0 or more and not all 0."""
    return math.fsum(map(float.__mul__, map(float, values), map(float, weights))) / _total(values, weights)


def weighted_percentile(values: Sequence[float], weights: Sequence[float], share: float) -> float:
    """The least value at or below which at least `share` of the weight lies; not interpolated."""
    limit = share * _total(values, weights)
    held = 0.0
    ordered = sorted(pair for pair in zip(values, weights, strict=True) if pair[1] > 0)
    for value, weight in ordered:
        held += weight
        if held >= limit:
            return value
    return ordered[-1][0]  # rounding kept the sum below the limit


def deviation(values: Sequence[float]) -> float:
    """The standard deviation of the population that the values are a sample of (n − 1); 0 for a single value."""
    middle = mean(values)
    if len(values) < 2:
        return 0.0
    return math.sqrt(math.fsum((value - middle) ** 2 for value in values) / (len(values) - 1))


def _total(values: Sequence[float], weights: Sequence[float]) -> float:
    if len(values) != len(weights):
        raise ValueError(f"{len(values)} values and {len(weights)} weights")
    if any(weight < 0 for weight in weights):
        raise ValueError("a weight is negative")
    total = math.fsum(weights)
    if total <= 0:
        raise ValueError("no weight, so no mean and no percentile")
    return total
