"""Do two tools agree? Judged on their ratio within each round, since a machine's speed moves from round to round."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from kilocard.core.confidence import mean_interval


class Verdict(StrEnum):
    #: the middle is within the limit, and known to better than the limit: a difference of twice as much is ruled out
    AGREE = "agrees"
    #: all of the interval is beyond the limit
    APART = "too far"
    #: neither: more rounds
    OPEN = "not decided"


@dataclass(frozen=True)
class Beside:
    """One tool over another: geometric mean of the ratios, and its 95 % interval. NaN: too few rounds for one."""

    middle: float
    low: float
    high: float
    verdict: Verdict

    def __str__(self) -> str:
        if math.isnan(self.middle):
            return "–"
        if math.isnan(self.low):
            return f"{self.middle - 1:+.1%}"
        return f"{self.middle - 1:+.1%} ({self.low - 1:+.1%} to {self.high - 1:+.1%})"


def beside(ratios: Sequence[float], limit: float) -> Beside:
    """`limit`: how far apart they may be, a share.

    The interval is nominal: who looks after each round, and stops when it is narrow, is wrong a little more often than
    one time in twenty.
    """
    if not ratios:
        return Beside(math.nan, math.nan, math.nan, Verdict.OPEN)
    found = mean_interval([math.log(each) for each in ratios])
    middle = math.exp(found.middle)
    if found.low is None or found.high is None:
        return Beside(middle, math.nan, math.nan, Verdict.OPEN)
    low, high = math.exp(found.low), math.exp(found.high)
    verdict = Verdict.OPEN
    if low > 1 + limit or high < 1 - limit:
        verdict = Verdict.APART
    elif abs(middle - 1) <= limit and (high - low) / 2 <= limit:
        verdict = Verdict.AGREE
    return Beside(middle, low, high, verdict)
