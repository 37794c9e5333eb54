"""The points of a sweep in order of load, repeats side by side.

Points at which the load tester was the limit are left out: they say nothing about the server.
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


def closed(points: Sequence[PointResult]) -> list[Load]:
    return _by_load(points, lambda point: point.concurrency)


def opened(points: Sequence[PointResult]) -> list[Load]:
    return _by_load(points, lambda point: point.rate_per_s)


def _by_load(points: Sequence[PointResult], load: Callable[[PointResult], float | None]) -> list[Load]:
    groups: dict[float, list[PointResult]] = {}
    for point in points:
        if (at := load(point)) is not None and not point.client.limited:
            groups.setdefault(at, []).append(point)
    return [Load(at, tuple(groups[at])) for at in sorted(groups)]
