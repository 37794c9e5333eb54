"""Homes that need no memory: a ring of hashes, the same in every process that knows the same replicas."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

from kilocard.core.prefix import key_of

#: points of a replica on the ring: its share of the keys is 1/N, give or take a quarter
POINTS: Final = 16
#: points that are looked at for a home that may take a request
STEPS: Final = 64


class Ring:
    """Consistent hashing (Karger, 1997): a replica that goes moves its own keys only, 1/N of all.

    The home of a key is the replica of the next point; if that one is not available, the next after it. All processes
    go the same way, so they agree on the second home too.
    """

    __slots__ = ("_owners", "_points")

    def __init__(self) -> None:
        self._points: list[int] = []
        #: slots of the replicas whose points these are
        self._owners: list[int] = []

    def __len__(self) -> int:
        return len(self._points)

    def add(self, replica: str, slot: int) -> None:
        points = self._points
        for number in range(POINTS):
            point = key_of(b"%d %b" % (number, replica.encode()))
            place = bisect_left(points, point)
            if place == len(points) or points[place] != point:  # two replicas on one point: the first has it
                points.insert(place, point)
                self._owners.insert(place, slot)

    def remove(self, slot: int) -> None:
        left = [(point, owner) for point, owner in zip(self._points, self._owners, strict=True) if owner != slot]
        self._points = [point for point, _ in left]
        self._owners = [owner for _, owner in left]

    def home(self, key: int, among: int) -> int | None:
        """The slot where this key is at home. `among`: a bit for each slot that may be taken."""
        owners = self._owners
        count = len(owners)
        place = bisect_left(self._points, key)
        for step in range(place, place + min(STEPS, count)):
            slot = owners[step if step < count else step - count]
            if among >> slot & 1:
                return slot
        return None
