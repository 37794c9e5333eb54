"""Marked and convicted bodies, in bounded memory, each until its time is over."""

from __future__ import annotations

from collections import OrderedDict

from kilocard.dispatch.suspicion import Conviction, Mark
from kilocard.dispatch.topology import Model

#: bodies that are remembered at most; the oldest are forgotten
MARKS, CONVICTIONS = 4096, 1024
#: seconds between two sweeps
SWEEP = 1.0


class Docket:
    def __init__(self) -> None:
        #: length of a marked or convicted body → how many there are; empty: nothing to look for
        self.sizes: dict[int, int] = {}
        self.marks: OrderedDict[str, Mark] = OrderedDict()
        self.convicted: OrderedDict[str, Conviction] = OrderedDict()
        self._swept_at = 0.0

    def mark(self, fingerprint: str, model: Model) -> Mark:
        """The body's mark, the newest of all now."""
        mark = self.marks.get(fingerprint)
        if mark is not None:
            self.marks.move_to_end(fingerprint)
            return mark
        mark = self.marks[fingerprint] = Mark(fingerprint, model)
        self._count(fingerprint, 1)
        if len(self.marks) > MARKS:
            self.drop(next(iter(self.marks.values())))
        return mark

    def drop(self, mark: Mark) -> None:
        """Nothing is held against it any more."""
        if self.marks.get(mark.fingerprint) is mark:
            del self.marks[mark.fingerprint]
            self._count(mark.fingerprint, -1)
        for incident in mark.incidents:
            incident.marks.pop(mark, None)
        mark.incidents = []
        mark.running = None

    def settle(self, mark: Mark) -> None:
        """Drop it if nothing is left that is worth remembering."""
        if not mark.incidents and not mark.acquitted:
            self.drop(mark)

    def convict(self, conviction: Conviction) -> None:
        self.convicted[conviction.fingerprint] = conviction
        self._count(conviction.fingerprint, 1)
        if len(self.convicted) > CONVICTIONS:
            self._count(self.convicted.popitem(last=False)[0], -1)

    def sweep(self, now: float) -> None:
        """Called with each tick; looks about once a second. O(bodies), 0 while there are none."""
        if not self.sizes or now - self._swept_at < SWEEP:
            return
        self._swept_at = now
        for mark in [mark for mark in self.marks.values() if now >= mark.until]:
            self.drop(mark)
        for conviction in [one for one in self.convicted.values() if now >= one.until]:
            del self.convicted[conviction.fingerprint]
            self._count(conviction.fingerprint, -1)

    def _count(self, fingerprint: str, by: int) -> None:
        size = int(fingerprint.partition("-")[0], 16)
        left = self.sizes.get(size, 0) + by
        if left:
            self.sizes[size] = left
        else:
            del self.sizes[size]
