"""The least loaded of many, without a scan."""

from __future__ import annotations

from collections.abc import Container
from heapq import heapify, heappop, heappush, heapreplace
from random import Random
from typing import Any, Final

#: (score, tie-break, replica). Compared by identity, so it must stay one object: a compiler that unboxes tuples of
#: known types would make two of one
Entry = tuple[Any, ...]

#: the heap is rebuilt when it has more than this × live + SPARE entries: memory stays flat, cost amortised O(1)
STALE_FACTOR: Final = 2
SPARE: Final = 8


class LoadIndex:
    """A heap of (score, tie-break, replica) with lazy deletion.

    An entry counts only while it is the one in `_live` for its replica; older ones are dropped when they come to
    the top. The tie-break is drawn at each put, so equal scores are in random order, never in order of names.

    A draw alone would starve: who is not chosen keeps its number while the chosen one draws again until it is
    beaten, so the number to beat only grows and an idle pool of two sticks to one replica for ever longer runs. So
    the draw stands on a floor that rises by 1 with as many puts as there are replicas.
    """

    __slots__ = ("_draw", "_floor", "_heap", "_limit", "_live")

    def __init__(self, rng: Random) -> None:
        self._draw = rng.random
        self._heap: list[Entry] = []
        self._live: dict[str, Entry] = {}
        self._limit = SPARE
        self._floor = 0.0

    def __len__(self) -> int:
        return len(self._live)

    def __contains__(self, replica: object) -> bool:
        return replica in self._live

    @property
    def entries(self) -> int:
        """Entries in memory, stale ones included."""
        return len(self._heap)

    def put(self, replica: str, score: float, blur: float = 0.0) -> None:
        """Add the replica, or give it a new score. `blur`: scores that differ by less may be in either order; who is
        ahead is drawn."""
        live = self._live
        heap = self._heap
        old = live.get(replica)
        if old is not None:
            self._floor += 1.0 / len(live)
        draw = self._draw()
        entry: Entry = (score + blur * draw, self._floor + draw, replica)
        if old is not None and heap[0] is old:
            live[replica] = entry
            heapreplace(heap, entry)
            return
        live[replica] = entry
        heappush(heap, entry)
        if len(heap) > self._limit:
            self._rebuild()

    def discard(self, replica: str) -> None:
        """Take it out; unknown replicas are fine."""
        self._live.pop(replica, None)

    def best(self, exclude: Container[str] = ()) -> Entry | None:
        """The entry with the lowest score whose replica is not excluded. Nothing changes."""
        heap = self._heap
        live = self._live
        while heap:
            top = heap[0]
            replica = top[2]
            if live.get(replica) is not top:
                heappop(heap)
            elif exclude and replica in exclude:
                return self._best_but(exclude)
            else:
                return top
        return None

    def _best_but(self, exclude: Container[str]) -> Entry | None:
        """Step over excluded entries, then put them back. Retries only: they exclude one or two."""
        heap = self._heap
        stepped_over: list[Entry] = []
        found: Entry | None = None
        while heap:
            top = heap[0]
            if self._live.get(top[2]) is top:
                if top[2] not in exclude:
                    found = top
                    break
                stepped_over.append(top)
            heappop(heap)
        for entry in stepped_over:
            heappush(heap, entry)
        return found

    def lowest(self, count: int) -> list[Entry]:
        """At most `count` entries with the lowest scores, in order. Nothing changes, not even what is stale.

        A walk from the top of the heap: an entry's children are never before it.
        """
        heap, live = self._heap, self._live
        found: list[Entry] = []
        edge = [(heap[0], 0)] if heap else []
        while edge and len(found) < count:
            entry, place = heappop(edge)
            if live.get(entry[2]) is entry:
                found.append(entry)
            for child in (2 * place + 1, 2 * place + 2):
                if child < len(heap):
                    heappush(edge, (heap[child], child))
        return found

    def _rebuild(self) -> None:
        self._heap = list(self._live.values())
        heapify(self._heap)
        self._limit = STALE_FACTOR * len(self._heap) + SPARE
