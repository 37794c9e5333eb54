"""Quantiles from histogram buckets that say when they can't know."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import NamedTuple


class Quantile(NamedTuple):
    """`beyond`: the quantile lies past the last finite bucket; `value` is then that bucket's bound, a lower limit."""

    value: float
    beyond: bool

    def __str__(self) -> str:
        return f"> {self.value:g}" if self.beyond else f"{self.value:.4g}"


def quantile(buckets: Mapping[float, float], q: float) -> Quantile | None:
    """The q-quantile (0 to 1) of cumulative buckets {upper bound: count}, +Inf included.

    Linear inside a bucket, as Prometheus does it. None where nothing was counted or +Inf is missing.
    """
    total = buckets.get(inf, 0.0)
    if total <= 0.0:
        return None
    rank = q * total
    lower = below = 0.0
    for bound in sorted(buckets):
        count = buckets[bound]
        if bound == inf:
            break
        if count >= rank and count > below:
            return Quantile(lower + (bound - lower) * max(0.0, rank - below) / (count - below), False)
        lower, below = bound, max(below, count)
    return Quantile(lower, True)
