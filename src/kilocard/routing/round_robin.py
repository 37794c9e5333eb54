"""One after the other."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Container
from itertools import islice
from random import Random

from kilocard.core.decision import Decision
from kilocard.core.prefix import Prefix
from kilocard.routing.base import Outcome, Policy
from kilocard.routing.load import ReplicaLoad


class RoundRobin(Policy):
    """The replica that has gone longest without a turn. The order is the cursor: first in line is next.

    Unavailable replicas are not in line; one that comes (back) joins at the end. All steps are O(1).
    """

    name = "round_robin"
    observes = False
    reason = "round_robin: next in turn"

    def __init__(self, rng: Random) -> None:
        self._line: OrderedDict[str, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._line)

    def add(self, replica: ReplicaLoad) -> None:
        self._line.setdefault(replica.id)

    def remove(self, replica: ReplicaLoad) -> None:
        self._line.pop(replica.id, None)

    def forget(self, replica: ReplicaLoad) -> None:
        self.remove(replica)

    def lost_cache(self, replica: ReplicaLoad) -> None:
        """Caches do not matter."""

    def update(self, replica: ReplicaLoad) -> None:
        """Load does not matter."""

    def choose(self, exclude: Container[str] = (), prefix: Prefix | None = None) -> Decision | None:
        for replica in self._line:
            if not exclude or replica not in exclude:
                self._line.move_to_end(replica)
                return Decision(replica, self.reason, 0.0)
        return None

    def lowest(
        self, count: int, exclude: Collection[str] = (), prefix: Prefix | None = None
    ) -> list[tuple[float, str]]:
        """The score is the turns that come before."""
        line = (replica for replica in self._line if replica not in exclude)
        return [(float(turns), replica) for turns, replica in enumerate(islice(line, count))]

    def observe(self, replica: ReplicaLoad, outcome: Outcome) -> None:
        """Nothing is learned."""
