"""Throughput when everything is sent at once, or at full load: none of these points is in any fit.

python -m tests.ground_truth.speed_full_load
"""

from __future__ import annotations

import math
from collections import defaultdict

from tests.ground_truth.speed import ENGINES, shipped_profile, spread
from tests.ground_truth.speed_points import Point, points

from kilocard.perf.operating_point import capacity, operating_point
from kilocard.perf.priors import generation


def asked() -> list[Point]:
    """Rows with a throughput, of one tensor-parallel group, whose weights leave room."""
    return [
        point
        for point in points()
        if point.source in {"gpustack", "trtllm"}
        and point.engine in ENGINES
        and point.model != "-"
        and point.one_group
        and (point.requests_per_s or point.output_tokens_per_s)
        and point.rate is None
        and point.kv_tokens > point.input + point.output
    ]


def error(point: Point) -> float:
    """Relative, signed, of requests/s."""
    card = shipped_profile(point)
    measured = point.requests_per_s or (point.output_tokens_per_s or math.nan) / point.output
    streams = point.concurrency or point.requests
    told = (
        operating_point(card, streams, point.input, point.output)
        if streams
        else capacity(card, point.input, point.output)
    )
    return told.requests_per_s / measured - 1


def report() -> str:
    found: dict[str, list[float]] = defaultdict(list)
    for point in asked():
        name = f"{point.source} {point.engine} {generation(point.gpu)} {point.kind}"
        found[name + (" long prompts" if point.input >= 1000 else " short prompts")].append(error(point))
    lines = [f"{'full load: throughput':<52} rows   signed median    |error|     p90"]
    for name, errors in sorted(found.items()):
        middle = sorted(errors)[len(errors) // 2]
        lines.append(f"  {name:<50} {len(errors):4}         {middle:+7.0%}     {spread(errors)}")
    return "\n".join(lines)


if __name__ == "__main__":
    print(report())
