"""Events on virtual time: a heap, and nothing else. It never reads a clock."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

#: what happens: it is told the time and what was scheduled with it
Happening = Callable[[float, Any], None]


class Kernel:
    """Equal times come in the order in which they were scheduled, so a run never depends on hashes or addresses."""

    __slots__ = ("_going", "_heap", "_number", "events", "now")

    def __init__(self) -> None:
        #: seconds since the simulation's start
        self.now = 0.0
        #: how many have happened
        self.events = 0
        self._heap: list[tuple[float, int, Happening, Any]] = []
        self._number = 0
        self._going = False

    def at(self, when: float, happening: Happening, subject: Any = None) -> None:
        """`when` lies before the present: it happens at once, after what is due already."""
        self._number = number = self._number + 1
        heappush(self._heap, (when if when > self.now else self.now, number, happening, subject))

    def run(self, until: float = float("inf")) -> None:
        """Until `stop` is called, nothing is scheduled, or the next event lies behind `until`."""
        heap = self._heap
        self._going = True
        events = 0
        while heap and self._going:
            if heap[0][0] > until:
                self.now = until
                break
            now, _, happening, subject = heappop(heap)
            self.now = now
            events += 1
            happening(now, subject)
        self.events += events

    def stop(self) -> None:
        """Nothing more happens after what happens now."""
        self._going = False
