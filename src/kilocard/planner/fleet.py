"""How many replicas: from what one carries, what is lost between them, and what is kept free."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

#: modelled speed: no replica is planned above this share of its limit, whatever else is said. Measured: above it the
#: plan says that the replicas are full, since queues grow without bound at 1
MOST = 0.95
#: share of capacity used at the peak where speed is modelled: the rest covers the model's error
MODELLED_HEADROOM = 0.75
#: and where it was measured: the rate is the peak, and the trial on virtual time checks the tail
MEASURED_HEADROOM = 1.0
#: several replicas carry less than so many times one, as shared hosts and networks go (measure it: bench one and two).
#: Taken off a modelled speed. With a measured one it is what would change the answer: what uneven spreading costs, the
#: trial plays, and taking it off beforehand would count that twice
EFFICIENCY = 0.95
#: two load tests of the same replica differ by more than this share of its speed (1.7 % in docs/calibrate.md): a count
#: that misses by less is not one replica more. A bound of its own, not the profile's error, or a worse measurement
#: would buy fewer replicas
REPEAT = 0.01
#: and no more than this part of a replica is forgiven, or a thousand of them would be ten fewer
PART = 0.1


@dataclass(frozen=True, slots=True)
class Sizing:
    #: share of a replica's capacity that may be used at the peak
    headroom: float
    #: what n replicas give over n times one; None: nothing is taken off, the trial shows it
    efficiency: float | None = EFFICIENCY
    #: no more than this share of its limit
    most: float = MOST
    #: a count that misses by this share of speed, and by less than PART of a replica, is enough
    slack: float = 0.0

    @classmethod
    def modelled(cls, headroom: float | None = None, efficiency: float | None = None) -> Sizing:
        """None: our own numbers."""
        return cls(MODELLED_HEADROOM if headroom is None else headroom, efficiency or EFFICIENCY)

    @classmethod
    def measured(cls, headroom: float | None = None, efficiency: float | None = None) -> Sizing:
        """None: all of it, and no loss but what the trial shows."""
        return cls(MEASURED_HEADROOM if headroom is None else headroom, efficiency, most=1.0, slack=REPEAT)

    def usable(self, replicas: int) -> float:
        """Share of one replica's capacity that it is given when there are so many."""
        efficiency = 1.0 if self.efficiency is None or replicas == 1 else self.efficiency
        return min(self.most, self.headroom * efficiency)

    def replicas(self, rate_per_s: float, each_per_s: float) -> int:
        """The fewest that carry the rate; `each_per_s` is one replica's capacity."""
        if rate_per_s <= each_per_s * self.usable(1) * (1 + self.slack):
            return 1
        need = rate_per_s / (each_per_s * self.usable(2))
        # A whole number that misses by a rounding error is not one replica more.
        return max(2, math.ceil(need - max(1e-9, min(PART, need - need / (1 + self.slack)))))

    def as_tried(self, rate_per_s: float, each_per_s: float, replicas: int) -> Sizing:
        """Where virtual time wanted more replicas than the closed form: each is given what it has among those."""
        share = rate_per_s / (each_per_s * replicas)
        return replace(self, headroom=share / (self.efficiency or 1.0), slack=0.0)

    def for_modelled(self) -> Sizing:
        """The same question of a replica whose speed is modelled."""
        return Sizing(min(self.headroom, MODELLED_HEADROOM), self.efficiency or EFFICIENCY)

    def if_lost(self) -> Sizing | None:
        """Nothing was taken off: the same with the usual loss between replicas."""
        return None if self.efficiency is not None else Sizing(self.headroom, EFFICIENCY, self.most)


def is_full(rate_per_s: float, each_per_s: float, replicas: int) -> bool:
    """So near their limit that requests wait longer the longer the peak lasts."""
    return rate_per_s > MOST * each_per_s * replicas * (1 + 1e-9)
