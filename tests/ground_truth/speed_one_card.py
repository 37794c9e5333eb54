"""How far a profile is off that was fitted on part of one card's points: the goal of calibration.

    python -m tests.ground_truth.speed_one_card

A card is one (engine, version, model, GPU, layout, weights). Of each of its curves every other concurrency is fitted,
the rest is predicted. What is fitted are five factors on the modelled profile: fixed time, weights, products, cache,
sequences; each is held near 1 a little, so that a factor which the points say nothing of stays where the prior has it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from tests.ground_truth.speed import ENGINES, shipped_profile, spread
from tests.ground_truth.speed_fit import Numbers, answer, search
from tests.ground_truth.speed_points import Point, closed_loop

from kilocard.core.statistics import percentile
from kilocard.perf.operating_point import operating_point
from kilocard.perf.profile import Profile

FACTORS: Numbers = {"fixed": 1.0, "weights": 1.0, "products": 1.0, "cache": 1.0, "sequences": 1.0}
#: how much a factor of e is worth, in points off by a factor of e
HELD = 0.03


def scaled(base: Profile, n: Numbers) -> Profile:
    return replace(
        base,
        step_fixed_s=base.step_fixed_s * n["fixed"],
        weights_s=base.weights_s * n["weights"],
        experts_s=base.experts_s * n["weights"],
        prefill_token_s=base.prefill_token_s * n["products"],
        decode_seq_s=base.decode_seq_s * n["products"],
        attention_s=base.attention_s * n["products"],
        kv_token_s=base.kv_token_s * n["cache"],
        sequence_s=base.sequence_s * n["sequences"],
    )


def fitted(rows: Sequence[Point], base: Profile) -> Profile:
    def cost(n: Numbers) -> float:
        card = scaled(base, n)
        misses = sum(abs(math.log(answer(row, card).tpot_s / (row.tpot_s or math.nan))) for row in rows)
        return misses / len(rows) + HELD / len(FACTORS) * sum(abs(math.log(factor)) for factor in n.values())

    return scaled(base, search(FACTORS, cost, rounds=12, quiet=True))


def cards(engine: str) -> dict[str, list[Point]]:
    """With eight points or more, all of them below saturation."""
    found: dict[str, list[Point]] = defaultdict(list)
    for point in closed_loop(engine):
        base = shipped_profile(point)
        told = operating_point(base, point.concurrency or 1, point.input, point.output)
        if not told.saturated and told.kv_share <= 0.9:
            found[f"{point.version} {point.model} {point.quantization} {point.gpu_name} {point.layout}"].append(point)
    return {name: rows for name, rows in found.items() if len(rows) >= 8}


def halves(rows: Sequence[Point]) -> tuple[list[Point], list[Point]]:
    """Every other point of each curve, by concurrency."""
    curves: dict[str, list[Point]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: row.concurrency or 0):
        curves[row.curve].append(row)
    known = [row for curve in curves.values() for row in curve[::2]]
    return known, [row for curve in curves.values() for row in curve[1::2]]


def errors(rows: Sequence[Point]) -> list[float]:
    known, asked = halves(rows)
    if not asked:
        return []
    card = fitted(known, shipped_profile(rows[0]))
    return [answer(row, card).tpot_s / (row.tpot_s or math.nan) - 1 for row in asked]


def report() -> str:
    lines = [f"{'one card: TPOT of the points left out':<76} rows    median     p90"]
    for engine in ENGINES:
        every: list[float] = []
        each = []
        for name, rows in sorted(cards(engine).items()):
            found = errors(rows)
            if found:
                every += found
                each.append(spread(found).median)
                lines.append(f"  {name:<74} {len(found):4}    {spread(found)}")
        lines.append(f"{engine}: all {len(each)} cards{'':<62} {len(every):4}    {spread(every)}")
        lines.append(f"{engine}: median of the cards' medians {percentile(each, 0.5):.1%}")
    return "\n".join(lines)


if __name__ == "__main__":
    print(report())
