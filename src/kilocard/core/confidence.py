"""How sure a number is: intervals of a mean and of a percentile, and whether two runs differ or only scatter.

Repeats are what scatter is judged by: requests of one run are not independent of each other (they share its batches),
so an interval from within one run is too narrow. Give one number for each repeat: its throughput, or its p99.
Few repeats (2 to 10) are usual, so Student's t, not the normal distribution. A permutation test would need no
assumption about the distribution, but with 3 repeats against 3 its p-value can't fall below 0.1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

from kilocard.core.statistics import deviation, mean, of_sorted

LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class Interval:
    """`low` and `high` are None when there is too little to say: a single repeat."""

    middle: float
    low: float | None
    high: float | None
    level: float = LEVEL


@dataclass(frozen=True, slots=True)
class Difference:
    """B against A. `low` and `high` bound B − A; `share` is (B − A) / A, None when A is 0."""

    change: float
    share: float | None
    low: float | None
    high: float | None
    #: how likely repeats that do not differ would scatter at least so far apart; None: too few repeats to say
    p_value: float | None
    level: float = LEVEL

    @property
    def noise(self) -> bool | None:
        """True: it may be chance. None: unknown, which a single repeat on a side always is."""
        return None if self.p_value is None else self.p_value > 1 - self.level


def mean_interval(repeats: Sequence[float], level: float = LEVEL) -> Interval:
    """Of the mean of one number for each repeat (a throughput, a p99), by Student's t."""
    middle, count = mean(repeats), len(repeats)
    if count < 2:
        return Interval(middle, None, None, level)
    half = t_quantile((1 + level) / 2, count - 1) * deviation(repeats) / math.sqrt(count)
    return Interval(middle, middle - half, middle + half, level)


def percentile_interval(values: Sequence[float], share: float, level: float = LEVEL) -> Interval:
    """Of a percentile within one run, by order statistics: any distribution, but independent values.

    A bound is None where the values do not reach so far: p99 of 100 values has no upper bound.
    """
    ordered = sorted(values)
    count = len(ordered)
    middle = of_sorted(ordered, share)
    spread = NormalDist().inv_cdf((1 + level) / 2) * math.sqrt(count * share * (1 - share))
    below, above = math.floor(count * share - spread), math.ceil(count * share + spread)
    low = ordered[below - 1] if below >= 1 else None
    return Interval(middle, low, ordered[above] if above < count else None, level)


def difference(a: Sequence[float], b: Sequence[float], level: float = LEVEL) -> Difference:
    """Is B different from A, or is it noise? Welch's t test on one number for each repeat: the spreads may differ."""
    first, second = mean(a), mean(b)
    change = second - first
    share = change / first if first else None
    if len(a) < 2 or len(b) < 2:
        return Difference(change, share, None, None, None, level)
    spread_a, spread_b = deviation(a) ** 2 / len(a), deviation(b) ** 2 / len(b)
    error = math.sqrt(spread_a + spread_b)
    if error == 0:
        return Difference(change, share, change, change, 0.0 if change else 1.0, level)
    # Welch and Satterthwaite; by shares of the whole, so that tiny spreads do not underflow
    part_a, part_b = spread_a / error**2, spread_b / error**2
    freedom = 1 / (part_a**2 / (len(a) - 1) + part_b**2 / (len(b) - 1))
    half = t_quantile((1 + level) / 2, freedom) * error
    p_value = 2 * (1 - t_cdf(abs(change) / error, freedom))
    return Difference(change, share, change - half, change + half, p_value, level)


def t_cdf(t: float, freedom: float) -> float:
    """Student's t distribution: the share at or below t. Degrees of freedom may be broken."""
    tail = _incomplete_beta(freedom / (freedom + t * t), freedom / 2, 0.5) / 2
    return 1 - tail if t > 0 else tail


def t_quantile(share: float, freedom: float) -> float:
    """t_cdf's inverse, by bisection: exact to 12 digits, and called a few times a report."""
    if share < 0.5:
        return -t_quantile(1 - share, freedom)
    low, high = 0.0, 1.0
    while t_cdf(high, freedom) < share:
        low, high = high, 2 * high
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if t_cdf(middle, freedom) < share else (low, middle)
    return (low + high) / 2


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function, by Lentz's continued fraction (Numerical Recipes 6.4)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # where the fraction converges slowly
        return 1 - _incomplete_beta(1 - x, b, a)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    tiny = 1e-300
    c, d = 1.0, 1 / ((1 - (a + b) * x / (a + 1)) or tiny)
    total = d
    for m in range(1, 500):
        for numerator in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / ((1 + numerator * d) or tiny)
            c = (1 + numerator / c) or tiny
            total *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return front * total / a
