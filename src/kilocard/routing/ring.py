"""Homes that need no memory: a ring of hashes, the same in every process that knows the same replicas."""

from __future__ import annotations

from bisect import bisect_left, insort

from kilocard.core.prefix import key_of

#: points of a replica on the ring: its share of the keys is 1/N, give or take a quarter
POINTS = 16
#: points that are looked at for a home that may take a request
STEPS = 64


class Ring:
    """Consistent hashing (Karger, 1997): a replica that goes moves its own keys only, 1/N of all.

    The home of a key is the replica of the next point; if that one is not available, the next after it. All processes
    go the same way, so they agree on the second home too.
    """

    __slots__ = ("_owners", "_points")

    def __init__(self) -> None:
        self._points: list[int] = []
        #: point → slot of the replica
        self._owners: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._points)

    def add(self, replica: str, slot: int) -> None:
        for number in range(POINTS):
            point = key_of(b"%d %b" % (number, replica.encode()))
            if point not in self._owners:  # two replicas on one point: the first has it; 15 others are left
                self._owners[point] = slot
                insort(self._points, point)

    def remove(self, slot: int) -> None:
        self._points = [point for point in self._points if self._owners[point] != slot]
        self._owners = {point: self._owners[point] for point in self._points}

    def home(self, key: int, among: int) -> int | None:
        """The slot where this key is at home. `among`: a bit for each slot that may be taken."""
        points = self._points
        count = len(points)
        place = bisect_left(points, key)
        for step in range(min(STEPS, count)):
            slot = self._owners[points[(place + step) % count]]
            if among >> slot & 1:
                return slot
        return None
