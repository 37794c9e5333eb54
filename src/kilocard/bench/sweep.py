"""Which point is measured next: a list that was asked for, or doubling until past the knee and then closer around it.

Pure: what was measured goes in, the next load comes out. What counts as past the knee is somebody else's judgement.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from kilocard.bench.loads import Load
from kilocard.bench.point import Point


class Sweep(Protocol):
    def next(self, points: Sequence[Point]) -> Load | None:
        """The next load after these points, in the order in which they were measured; None: that was all."""


IsPast = Callable[[Sequence[Point]], bool]


@dataclass(frozen=True, slots=True)
class Listed:
    """The loads that were asked for, the whole list `repeats` times: what drifts hits all of them alike.

    With `is_past` the list ends where it says so for the first time; the repeats then go that far.
    """

    loads: Sequence[Load]
    repeats: int = 1
    is_past: IsPast | None = None

    def next(self, points: Sequence[Point]) -> Load | None:
        done = len(points)
        length = len(self.loads)
        if self.is_past is not None:
            length = next((n for n in range(1, min(done, length) + 1) if self.is_past(points[:n])), length)
        return self.loads[done % length] if done < self.repeats * length else None


@dataclass(frozen=True, slots=True)
class Doubling:
    """1, 2, 4, … until `is_past`; then halfway points beside the knee, where the next doubling was too coarse.

    `is_past` and `knee` look at all points so far; `knee` answers with one of the concurrencies measured.
    """

    is_past: IsPast
    knee: Callable[[Sequence[Point]], int | None]
    most: int = 512
    repeats: int = 1
    refinements: int = 3

    def next(self, points: Sequence[Point]) -> Load | None:
        times = Counter(point.concurrency for point in points if point.concurrency is not None)
        if not times:
            return Load(concurrency=1)
        tried = list(times)  # in the order of their first measurement: doubled ones, then those in between
        if times[tried[-1]] < self.repeats:
            return Load(concurrency=tried[-1])
        top = max(tried)
        refined = len(tried) - 1 - tried.index(top)
        if not refined and top < self.most and not self.is_past(points):
            return Load(concurrency=min(self.most, 2 * top))
        return self._closer(points, sorted(tried)) if refined < self.refinements else None

    def _closer(self, points: Sequence[Point], tried: list[int]) -> Load | None:
        """Halfway to the neighbour below, which may do as well with less; then halfway to the one above."""
        knee = self.knee(points)
        if knee is None:
            return None
        at = tried.index(knee)
        for lower, upper in ((at - 1, at), (at, at + 1)):
            if lower >= 0 and upper < len(tried) and _far_apart(tried[lower], tried[upper]):
                return Load(concurrency=(tried[lower] + tried[upper]) // 2)
        return None


def _far_apart(lower: int, upper: int) -> bool:
    """Points closer than an eighth tell nothing that the noise of a repeat does not."""
    return upper - lower >= 2 and (upper - lower) * 4 > lower
