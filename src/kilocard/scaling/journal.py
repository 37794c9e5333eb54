"""The last decisions, for people: `kilocard status` and the admin API show them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from kilocard.scaling.decision import ScalingDecision


class Journal:
    """A ring. A decision that repeats the one before it (same reason, same numbers of replicas) replaces it and keeps
    its time, so that hours of `steady` do not push out what happened."""

    def __init__(self, size: int = 256) -> None:
        self._entries: deque[tuple[float, ScalingDecision]] = deque(maxlen=size)

    def add(self, decision: ScalingDecision) -> None:
        """Keep it."""
        if self._entries:
            since, last = self._entries[-1]
            if (last.have, last.wanted, last.reason) == (decision.have, decision.wanted, decision.reason):
                self._entries[-1] = (since, decision)
                return
        self._entries.append((decision.at, decision))

    def __iter__(self) -> Iterator[tuple[float, ScalingDecision]]:
        """(since when it was decided like this, the latest such decision), oldest first."""
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)
