"""How long replicas take from being wanted until they serve, learned from those that did."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from kilocard.core.signals import COMING, Phase, ReplicaSignals
from kilocard.core.statistics import of_sorted
from kilocard.scaling.saved import numbers

#: until one was seen, seconds
GUESS_S = 60.0
#: starts that are remembered, and the share of them that was not slower than what is expected
STARTS, SURE = 16, 0.8
#: a replica that is late is expected to take this share of its age longer
LATE = 0.2


class ColdStarts:
    """A wait for a GPU is no part of a cold start: it says nothing of the next one."""

    def __init__(self) -> None:
        self._took: deque[float] = deque(maxlen=STARTS)
        #: when each that comes now began to start
        self._began: dict[str, float] = {}
        self._oldest_s = 0.0

    def look(self, now: float, replicas: Sequence[ReplicaSignals]) -> None:
        """Once a second or so, with all replicas of the pool."""
        began: dict[str, float] = {}
        for each in replicas:
            known = self._began.get(each.id)
            if each.phase is Phase.READY:
                if known is not None:
                    self._took.append(now - known)
            elif each.phase in COMING and each.phase is not Phase.PENDING:
                began[each.id] = known if known is not None else now - each.since_s
        self._began = began
        self._oldest_s = max((now - since for since in began.values()), default=0.0)

    @property
    def seconds(self) -> float:
        """What is to be expected of the next one; more than ever before, if one takes longer just now."""
        usual = of_sorted(sorted(self._took), SURE) if self._took else GUESS_S
        return max(usual, self._oldest_s * (1.0 + LATE))

    def left(self, now: float, replica: ReplicaSignals) -> float:
        """Seconds until one that comes serves. One that waits for a GPU has all of it before it."""
        began = self._began.get(replica.id)
        if began is None:
            return self.seconds
        age = now - began
        return max(1.0, self.seconds - age, LATE * age)

    def snapshot(self) -> list[float]:
        """As JSON data."""
        return [round(each, 3) for each in self._took]

    def restore(self, saved: Mapping[str, Any]) -> None:
        """From `cold_starts` of what was saved."""
        self._took.extend(numbers(saved.get("cold_starts")))
