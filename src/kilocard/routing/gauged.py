"""Policies whose score reads gauges: how far these are believed where others send to the same replicas."""

from __future__ import annotations

from random import Random
from typing import Final

from kilocard.routing.scored import ScoredPolicy

#: one choice in so many looks at whose requests are there; a power of two
SAMPLED: Final = 8
#: share of the newest replica that was looked at in the running means
NEW: Final = 0.02
#: a smaller share of others' load is an error of the estimate
LONE: Final = 0.05


class GaugedPolicy(ScoredPolicy):
    """Keeps `belief`: what a score multiplies with whatever only gauges say. 1 where nobody else sends, else the
    square of the share of the load that we know of, ours and our peers'.

    Every gateway reads the same gauges, up to a scrape interval late, and sends to whoever was idle then. Each of G
    gateways would mend the whole of what it sees, so it would be mended G times: the idle replica is the crowded one in
    the next reading. Weighed by 1/G they mend it once; what waits is in the gauges twice, as a request and as one that
    waits, so the share is squared. Own requests are known at once, and count in full.

    Where a gateway has few requests of its own, most replicas have none, and gauges decide between these however little
    they weigh: again all gateways take the same one. So a policy may be `coarse`: where all the load is strangers',
    gauges that differ by less than so many requests are in any order (index.py), and each gateway draws for itself.
    """

    coarse = 0.0

    def __init__(self, rng: Random) -> None:
        super().__init__(rng)
        self.belief = 1.0
        #: requests by which scores are blurred
        self.blur = 0.0
        #: share of the load that is not this dispatcher's own
        self.others = 0.0
        self._choices = 0
        #: running means of requests on a replica: all; not ours; seen in gauges only. They began together, so their
        #: ratios are right from the first reading on
        self._load = self._foreign = self._unknown = 0.0

    def _refresh(self) -> None:
        self._rescore()
        self._choices += 1
        if not self._choices % SAMPLED:
            self._look()
        self._changed.clear()

    def _look(self) -> None:
        """Whose load is it on the replicas that have changed? Each is among them once per scrape interval at least."""
        for replica in self._changed.values():
            foreign = replica.foreign
            self._load += NEW * (replica.in_flight + foreign - self._load)
            self._foreign += NEW * (foreign - self._foreign)
            self._unknown += NEW * (foreign - replica.peers[0] - self._unknown)
        if self._load > 0.0:
            self.others = self._foreign / self._load
            strangers = self._unknown / self._load
            if strangers < LONE:
                self.belief, self.blur = 1.0, 0.0
            else:
                self.belief = (1.0 - strangers) ** 2
                self.blur = self.coarse * strangers * self.belief
