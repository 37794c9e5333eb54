"""The harder question: a model of which no point was in the fit, on any GPU and any engine. Fits anew without each.

    python -m tests.ground_truth.speed_unseen_model      # half an hour
    python -m tests.ground_truth.speed_unseen_model gpu  # the same for a GPU that no fit has seen

Models of one shape are left out together: what the table calls DeepSeek-V3 are runs of R1.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from tests.ground_truth.speed import Checked, groups, spread
from tests.ground_truth.speed_fit import STEPS_AHEAD, answer, fitted, generations, profile, reach, rounded, training
from tests.ground_truth.speed_points import Point, closed_loop

from kilocard.perf.priors import generation

#: a class of an engine, GPUs and models has an error of its own where it has so many rows
LEAST_ROWS = 40


def left_out(name: Callable[[Point], str]) -> list[Checked]:
    """Every point with the numbers of a fit that has seen no point of the same name."""
    every = [point for engine in STEPS_AHEAD for point in closed_loop(engine)]
    found = []
    for each in sorted({name(point) for point in every}):
        numbers = fitted(training(lambda point, each=each: name(point) != each))  # type: ignore[misc]  # binds the loop's each
        for point in every:
            if name(point) == each and point.engine in numbers:
                own = rounded(numbers[point.engine])
                card = profile(point, reach(own, point.engine), generations(own))
                found.append(Checked(point, answer(point, card)))
        print(each, file=sys.stderr)
    return found


def report(found: list[Checked], name: Callable[[Point], str]) -> str:
    lines = [f"{'left out':<46} rows | throughput     p90   bias |   TPOT     p90 |   TTFT     p90"]
    below = [row for row in found if not row.near_capacity]
    for engine in STEPS_AHEAD:
        mine = [row for row in below if row.point.engine == engine]
        for key, some in {**groups(mine, lambda row: name(row.point)), "all": mine}.items():
            middle = sorted(row.throughput for row in some)[len(some) // 2]
            lines.append(
                f"{engine:<8} {key:<37} {len(some):4} |     {spread(r.throughput for r in some)} {middle:+6.0%} |"
                f" {spread(r.tpot for r in some)} | {spread(r.ttft for r in some)}"
            )
    return "\n".join(lines)


def evidence(found: list[Checked]) -> str:
    """What belongs into prior_numbers.py: classes with rows enough, then the engine's all."""
    lines = []
    for engine in STEPS_AHEAD:
        mine = [row for row in found if not row.near_capacity and row.point.engine == engine]
        for key, some in groups(mine, lambda row: f"{generation(row.point.gpu)} {row.point.kind}").items():
            if len(some) >= LEAST_ROWS:
                error = spread(row.throughput for row in some)
                models = len({row.point.family for row in some})
                lines.append(f"{engine} {key}: Evidence({len(some)}, {models}, {error.median:.3f}, {error.p90:.3f})")
    return "\n".join(lines)


def main() -> None:
    def name(point: Point) -> str:
        return point.gpu_name if "gpu" in sys.argv[1:] else point.family

    found = left_out(name)
    print(report(found, name))
    if "gpu" not in sys.argv[1:]:
        print(evidence(found))


if __name__ == "__main__":
    main()
