"""How many replicas: from what one carries, what is lost between them, and what is kept free."""

from __future__ import annotations

import math
from dataclasses import dataclass

#: no replica is planned above this share of its limit, whatever else is said: queues grow without bound at 1
MOST = 0.95
#: share of capacity used at the peak where speed is modelled: the rest covers the model's error
MODELLED_HEADROOM = 0.75
#: and where it was measured: the rate is the peak, and the trial on virtual time checks the tail
MEASURED_HEADROOM = 1.0
#: several replicas carry less than so many times one: requests are never spread evenly (measure it: bench one and two)
EFFICIENCY = 0.95


@dataclass(frozen=True, slots=True)
class Sizing:
    #: share of a replica's capacity that may be used at the peak
    headroom: float
    #: what n replicas give over n times one
    efficiency: float = EFFICIENCY

    def usable(self, replicas: int) -> float:
        """Share of one replica's capacity that it is given when there are so many."""
        return min(MOST, self.headroom * (self.efficiency if replicas > 1 else 1.0))

    def replicas(self, rate_per_s: float, each_per_s: float) -> int:
        """The fewest that carry the rate; `each_per_s` is one replica's capacity."""
        if rate_per_s <= each_per_s * self.usable(1):
            return 1
        # A whole number that misses by a rounding error is not one replica more.
        return max(2, math.ceil(rate_per_s / (each_per_s * self.usable(2)) - 1e-9))
