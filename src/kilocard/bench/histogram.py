"""Counts of times on a logarithmic scale: few enough for a file, fine enough (12 % a bucket) for a curve."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence

from kilocard.bench.document import Histogram

PER_DECADE = 20
_LEAST_S = 1e-5


def histogram(values: Sequence[float]) -> Histogram | None:
    """None for no values."""
    if not values:
        return None
    low = math.floor(PER_DECADE * math.log10(max(_LEAST_S, min(values))))
    high = max(low + 1, math.ceil(PER_DECADE * math.log10(max(_LEAST_S, max(values))) + 1e-9))
    bounds = [10 ** (step / PER_DECADE) for step in range(low, high + 1)]
    counts = [0] * (len(bounds) - 1)
    for value in values:
        counts[min(len(counts) - 1, max(0, bisect_right(bounds, value) - 1))] += 1
    return Histogram(bounds=[float(f"{bound:.6g}") for bound in bounds], counts=counts)
