"""The common half of policies that send to the lowest score."""

from __future__ import annotations

from collections.abc import Collection, Container
from random import Random
from typing import Final

from kilocard.core.decision import Decision
from kilocard.core.prefix import Prefix
from kilocard.routing.base import Outcome, Policy
from kilocard.routing.index import LoadIndex
from kilocard.routing.load import ReplicaLoad

#: Decision(…) by way of its own __new__ costs twice as much, and there is one for each request
_new: Final = tuple.__new__


class ScoredPolicy(Policy):
    """Keeps a LoadIndex of `score(replica)`; a subclass says what the score is and why.

    A changed replica is scored anew when the next choice is made, not when it changes: a request changes its replica
    two to four times and is chosen for once.
    """

    name = "scored"
    observes = False
    reason = "lowest score"
    #: scores that differ by less are in any order
    blur = 0.0

    def __init__(self, rng: Random) -> None:
        self._index = LoadIndex(rng)
        self._changed: dict[str, ReplicaLoad] = {}

    def score(self, replica: ReplicaLoad) -> float:
        """Lower is better."""
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self._index)

    def add(self, replica: ReplicaLoad) -> None:
        self._index.put(replica.id, self.score(replica), self.blur)

    def remove(self, replica: ReplicaLoad) -> None:
        self._changed.pop(replica.id, None)
        self._index.discard(replica.id)

    def forget(self, replica: ReplicaLoad) -> None:
        self.remove(replica)

    def lost_cache(self, replica: ReplicaLoad) -> None:
        """Most scores know nothing of caches."""

    def update(self, replica: ReplicaLoad) -> None:
        self._changed[replica.id] = replica

    def _refresh(self) -> None:
        """A choice will be made: what has changed since the last one is scored anew."""
        self._rescore()
        self._changed.clear()

    def _rescore(self) -> None:
        index, blur = self._index, self.blur
        for id, replica in self._changed.items():
            index.put(id, self.score(replica), blur)

    def choose(self, exclude: Container[str] = (), prefix: Prefix | None = None) -> Decision | None:
        if self._changed:
            self._refresh()
        best = self._index.best(exclude)
        if best is None:
            return None
        return _new(Decision, (best[2], self.reason, best[0], 0))

    def lowest(
        self, count: int, exclude: Collection[str] = (), prefix: Prefix | None = None
    ) -> list[tuple[float, str]]:
        changed = self._changed
        scores = [(self.score(replica), id) for id, replica in changed.items() if id in self._index]
        for score, _, id in self._index.lowest(count + len(changed) + len(exclude)):
            if id not in changed:
                scores.append((score, id))
        return sorted(item for item in scores if item[1] not in exclude)[:count]

    def observe(self, replica: ReplicaLoad, outcome: Outcome) -> None:
        """Most scores need only the load."""
