"""The harder question: a model of which no point was in the fit, on any GPU. Fits anew without each; some minutes.

python -m tests.ground_truth.speed_unseen_model vllm
"""

from __future__ import annotations

import sys
from functools import partial

from tests.ground_truth.speed import Checked, spread
from tests.ground_truth.speed_fit import START, answer, generations, loss, profile, reach, search, training


def main() -> None:
    engine = sys.argv[1]
    rows = training(engine, None)
    every = []
    head = f"{engine}: a model that no fit has seen"
    print(f"{head:<44} rows | throughput     p90 |   TPOT     p90 |   TTFT     p90")
    for model in sorted({row.model for row in rows}):
        others = [row for row in rows if row.model != model]
        numbers = search(START, partial(loss, others), rounds=7, quiet=True)
        own, cards = reach(numbers, engine), generations(numbers)
        asked = [row for row in rows if row.model == model]
        found = [Checked(row, answer(row, profile(row, own, cards))) for row in asked]
        found = [row for row in found if not row.near_capacity]
        if not found:
            continue
        every += found
        print(
            f"  {model:<42} {len(found):4} |     {spread(r.throughput for r in found)} | "
            f"{spread(r.tpot for r in found)} | {spread(r.ttft for r in found)}",
            flush=True,
        )
    print(
        f"  {'all':<42} {len(every):4} |     {spread(r.throughput for r in every)} | "
        f"{spread(r.tpot for r in every)} | {spread(r.ttft for r in every)}"
    )


if __name__ == "__main__":
    main()
