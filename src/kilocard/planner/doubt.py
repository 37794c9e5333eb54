"""How wrong a plan's speed may be, and what that means in replicas."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from kilocard.perf.profile import Profile
from kilocard.planner.fleet import Sizing

#: median error where neither the profile nor the model's priors state one, a share
UNKNOWN_ERROR = 0.3
#: the 90th percentile where only a median is stated: so many times it, as of the rows that priors were checked on
TAIL = 3.0
#: a prediction this far above what comes out says nothing about how much less it may be
_NO_FLOOR = 0.9


@dataclass(frozen=True, slots=True)
class Within:
    """What holds for a share of the predictions that the error was counted on."""

    #: |predicted / measured − 1| of throughput, at most
    error: float
    #: replicas that the same sizing takes where a replica is that much faster, and slower; None: no rate was asked for
    replicas: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class Doubt:
    #: half of such predictions
    median: Within
    #: nine in ten
    p90: Within
    #: the planned replicas carry the rate while speed is over-estimated by less than this share; None: no rate
    covered: float | None

    @property
    def off(self) -> str:
        """`7% at the median, 29% at the 90th percentile`"""
        return f"{self.median.error:.0%} at the median, {self.p90.error:.0%} at the 90th percentile"

    def replicas_text(self, planned: int) -> str:
        """`8 replicas; 8 within the median error of 7%, 6 to 10 within the 90th percentile's 29%`; empty: no rate."""
        if self.median.replicas is None or self.p90.replicas is None:
            return ""
        return (
            f"{planned} replica{'s' * (planned > 1)}; {_span(self.median.replicas)} within the median error of "
            f"{self.median.error:.0%}, {_span(self.p90.replicas)} within the 90th percentile's {self.p90.error:.0%}"
        )


def doubt(profile: Profile, sizing: Sizing, *, rate_per_s: float | None, each_per_s: float, replicas: int) -> Doubt:
    """`each_per_s`: what one replica carries by the profile; `replicas`: how many were planned."""
    median = UNKNOWN_ERROR if profile.error is None else profile.error
    p90 = TAIL * median if profile.error_p90 is None else profile.error_p90

    def within(error: float) -> Within:
        if rate_per_s is None:
            return Within(error, None)
        fast = each_per_s / (1 - min(error, _NO_FLOOR))
        slow = each_per_s / (1 + error)
        return Within(error, (sizing.replicas(rate_per_s, fast), sizing.replicas(rate_per_s, slow)))

    covered = None
    if rate_per_s is not None:
        full = replace(sizing, headroom=1.0).usable(replicas)
        covered = max(0.0, replicas * each_per_s * full / rate_per_s - 1)
    return Doubt(within(median), within(max(median, p90)), covered)


def _span(both: tuple[int, int]) -> str:
    few, many = both
    return f"{few}" if few == many else f"{few} to {many}"


def covers(found: Doubt) -> str:
    """Does the headroom cover the tail? Empty: no rate."""
    if found.covered is None:
        return ""
    share = math.floor(100 * found.covered)
    if not share:
        return "nothing is left over: where they are slower, requests wait"
    if found.covered >= found.p90.error:
        return f"the headroom covers both: the rate is carried while speed is over-estimated by less than {share}%"
    return f"the rate is carried while speed is over-estimated by less than {share}%; beyond it requests wait"
