"""The points of a sweep in order of load, repeats side by side.

Points at which the load tester was the limit are left out, since they say nothing about the server. Only the knee takes
them where there is nothing else, and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kilocard.bench.document import PointResult
from kilocard.core.statistics import mean


@dataclass(frozen=True, slots=True)
class Load:
    """All repeats at one load: a concurrency or a rate per second."""

    load: float
    repeats: tuple[PointResult, ...]

    @property
    def tokens_per_s(self) -> float:
        return mean([point.output_tokens_per_s for point in self.repeats])

    @property
    def requests_per_s(self) -> float:
        return mean([point.requests_per_s for point in self.repeats])

    @property
    def offered_per_s(self) -> float:
        return mean([point.offered_per_s for point in self.repeats])

    @property
    def ttft_p95_s(self) -> float | None:
        return self.mean_of(lambda point: point.ttft_s.p95 if point.ttft_s else None)

    def mean_of(self, number: Callable[[PointResult], float | None]) -> float | None:
        """Of the repeats that have it."""
        known = [value for point in self.repeats if (value := number(point)) is not None]
        return mean(known) if known else None

    def most(self, number: Callable[[PointResult], float | None]) -> float | None:
        """The largest of the repeats."""
        return max((value for point in self.repeats if (value := number(point)) is not None), default=None)

    @property
    def error_share(self) -> float:
        asked = sum(point.requests for point in self.repeats)
        return sum(point.errors for point in self.repeats) / asked if asked else 0.0


def closed(points: Sequence[PointResult], *, doubtful: bool = False) -> list[Load]:
    return _by_load(points, lambda point: point.concurrency, doubtful)


def opened(points: Sequence[PointResult], *, doubtful: bool = False) -> list[Load]:
    return _by_load(points, lambda point: point.rate_per_s, doubtful)


def _by_load(points: Sequence[PointResult], load: Callable[[PointResult], float | None], doubtful: bool) -> list[Load]:
    """`doubtful`: a load at which the load tester limited every repeat stays in, with those."""
    groups: dict[float, list[PointResult]] = {}
    for point in points:
        if (at := load(point)) is not None:
            groups.setdefault(at, []).append(point)
    loads = []
    for at in sorted(groups):
        trusted = [point for point in groups[at] if not point.client.limited]
        if trusted or doubtful:
            loads.append(Load(at, tuple(trusted or groups[at])))
    return loads
