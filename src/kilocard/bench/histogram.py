"""Counts of times on a logarithmic scale: few enough for a file, fine enough (12 % a bucket) for a curve."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise

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
    ordered = sorted(values)
    places = [0, *(bisect_left(ordered, bound) for bound in bounds[1:-1]), len(ordered)]
    counts = [after - before for before, after in pairwise(places)]
    return Histogram(bounds=[float(f"{bound:.6g}") for bound in bounds], counts=counts)
