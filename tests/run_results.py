"""A load test's document straight from its points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kilocard.bench.document import Results, Slo
from kilocard.bench.point import Point
from kilocard.bench.results import assemble
from kilocard.bench.summary import summarise


def results(points: Sequence[Point], *, slo: Slo | None = None, **rest: Any) -> Results:
    return assemble([summarise(point, slo) for point in points], slo=slo, **rest)
