"""How far the speed model is off, on points that no prior was fitted on. Prints the tables of docs/speed-model.md.

    python -m tests.ground_truth.speed

An error is |predicted / measured − 1|. Throughput of a closed loop is its concurrency over TTFT + TPOT × (output − 1),
both in the prediction and in the measurement, which is how the table's own throughputs come about.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache

from tests.ground_truth.speed_fit import FOLDS, answer, generations, profile, reach
from tests.ground_truth.speed_points import Point, closed_loop, points, stages

from kilocard.core.statistics import percentile
from kilocard.perf.operating_point import Expected
from kilocard.perf.prior_numbers import PRIORS
from kilocard.perf.profile import Profile

#: with priors of their own
ENGINES = tuple(PRIORS)


@dataclass(frozen=True)
class Checked:
    """A point and the model's answer. Errors are relative and signed: 0.1 is 10 % too much."""

    point: Point
    told: Expected

    @property
    def tpot(self) -> float:
        return self.told.tpot_s / (self.point.tpot_s or math.nan) - 1

    @property
    def ttft(self) -> float:
        return self.told.ttft_s / (self.point.ttft_s or math.nan) - 1

    @property
    def throughput(self) -> float:
        point = self.point
        measured = (point.ttft_s or 0) + (point.tpot_s or 0) * (point.reply - 1)
        return measured / (self.told.ttft_s + self.told.tpot_s * (point.reply - 1)) - 1

    @property
    def near_capacity(self) -> bool:
        """Above 0.9 of what the model says can come out at all."""
        return self.told.saturated or self.told.kv_share > 0.9


def check(rows: Iterable[Point]) -> list[Checked]:
    """With the numbers that are shipped."""
    checked = []
    for point in rows:
        prior = PRIORS[point.engine]
        checked.append(Checked(point, answer(point, profile(point, prior.reach, dict(prior.generations)))))
    return checked


@cache
def kept_apart(engine: str) -> list[Checked]:
    """Each curve with the numbers of the fold that has not seen it."""
    folds = json.loads(FOLDS.read_text())[engine]
    checked = []
    for fold in (0, 1):
        own, others = reach(folds[1 - fold], engine), generations(folds[1 - fold])
        checked += [
            Checked(point, answer(point, profile(point, own, others)))
            for point in closed_loop(engine)
            if point.fold == fold
        ]
    return checked


def kept_apart_stages() -> list[Checked]:
    """The runs of vLLM 0.15.1, each with the fold that has not seen it."""
    folds = json.loads(FOLDS.read_text())["vllm"]
    checked = []
    for point in stages():
        numbers = folds[1 - point.fold]
        card = profile(point, reach(numbers, "vllm"), generations(numbers))
        checked.append(Checked(point, answer(point, card)))
    return checked


def shipped_profile(point: Point, *, kv_tokens: int | None = None) -> Profile:
    prior = PRIORS[point.engine]
    card = profile(point, prior.reach, dict(prior.generations))
    return replace(card, kv_tokens=kv_tokens or card.kv_tokens)


told_of = answer


@dataclass(frozen=True)
class Spread:
    """Of absolute relative errors."""

    rows: int
    median: float
    p90: float

    def __str__(self) -> str:
        return f"{self.median:6.1%} {self.p90:7.1%}"


def spread(errors: Iterable[float]) -> Spread:
    sizes = [abs(error) for error in errors if not math.isnan(error)]
    return Spread(len(sizes), percentile(sizes, 0.5), percentile(sizes, 0.9))


def groups(rows: Sequence[Checked], name: Callable[[Checked], str]) -> dict[str, list[Checked]]:
    found: dict[str, list[Checked]] = {}
    for row in rows:
        found.setdefault(name(row), []).append(row)
    return dict(sorted(found.items()))


def table(title: str, rows: Sequence[Checked], name: Callable[[Checked], str]) -> str:
    lines = [f"{title:<44} rows | throughput     p90 |   TPOT     p90 |   TTFT     p90"]
    for key, some in groups(rows, name).items():
        lines.append(
            f"{key:<44} {len(some):4} |     {spread(r.throughput for r in some)} | {spread(r.tpot for r in some)} |"
            f" {spread(r.ttft for r in some)}"
        )
    return "\n".join(lines)


def report() -> str:
    parts = []
    for engine in PRIORS:
        rows = kept_apart(engine)
        below = [row for row in rows if not row.near_capacity]
        full = [row for row in rows if row.near_capacity]
        parts.append(table(f"{engine}: all", below, lambda row: "below 0.9 of capacity"))
        parts.append(table("by GPU and model class", below, lambda row: f"{row.point.gpu_name} {row.point.kind}"))
        parts.append(table("by model", below, lambda row: f"{row.point.model.split('/')[1]} {row.point.quantization}"))
        if full:
            parts.append(table("above 0.9 of capacity", full, lambda row: row.point.kind))
    return "\n\n".join(parts)


if __name__ == "__main__":
    print(report())
    print(table("vLLM 0.15.1 at a rate", kept_apart_stages(), lambda row: f"{row.point.model} {row.point.layout}"))
    print(len(points()), "points in the file")
