"""Fits the priors of perf/prior_numbers.py.

    python -m tests.ground_truth.speed_fit      # prints the numbers, and puts those of the two folds into
                                                # tests/data/speed/folds.json, which the error tables use

Two stages. What a GPU gives hardly hangs on the engine, whose kernels are often the same ones, and no engine has
enough models to tell all numbers apart: so one set for all three engines comes first, in which the turnaround of a
benchmark alone is each engine's own. Then each engine's numbers are fitted on its own rows, held to the shared ones: a
number moves where its rows insist, and one that they do not tell stays (`HELD`). TensorRT-LLM is fitted for itself.

Three times: on each half of the curves, to be judged on the other half, and on all, to be shipped. A search coordinate
by coordinate in the logarithm of each number. What is minimised is the mean of |ln(predicted TPOT / measured)|, each
point bounded at ln 1.8 so that odd points do not steer, plus a small part of the same for TTFT; a model measured with
n points on one GPU and version counts √n times, not n times.
"""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from tests.ground_truth.speed_points import DATA, Point, closed_loop, ladder, stages

from kilocard.perf.link import inside
from kilocard.perf.modelled import step_times
from kilocard.perf.operating_point import BENCHMARK_ROUNDS, Expected, at_rate, operating_point
from kilocard.perf.priors import Generation, Reach
from kilocard.perf.profile import Profile

Numbers = dict[str, float]

FOLDS = DATA / "folds.json"
#: vLLM schedules the next step while one runs
STEPS_AHEAD = {"vllm": 1.0, "sglang": 0.0, "trtllm": 0.0}
#: of a TTFT's error in the loss, beside a TPOT's: it varies more, and hangs on settings that no table states
TTFT_WEIGHT = 0.3

#: weight of the mean |ln(own number / shared one)| in an engine's own fit, by the error of models left out
#: (speed_unseen_model.py; docs/speed-model.md says what was tried). None: fitted for itself, since the shared set makes
#: it worse
HELD = {"vllm": 0.4, "sglang": 0.4, "trtllm": None}
TURNAROUND = "turnaround"

#: not fitted: the table's TTFTs hold the way through a client that is not known. Five open-loop runs of vLLM 0.15.1
#: with cached prompts on 7B and 12B models have 5 to 8 ms beside their steps.
REQUEST_S = 0.006

START: Numbers = {
    "bandwidth": 0.82, "experts4": 0.9, "experts8": 0.6, "experts16": 0.7, "cache": 0.8, "latent": 1.5,
    "dense16": 0.6, "dense8": 0.6, "dense4": 0.4, "expert16": 0.25, "expert8": 0.2, "expert4": 0.25,
    "attention": 0.5, "step": 6e-4, "layer": 3e-5, "expert_layer": 1.7e-5, "latent_layer": 2.5e-5,
    "prefill_layer": 1e-4, "turnaround": 4.0, "sequence": 1.8e-5, "rounds": 1.0, "link": 1.0,
    "blackwell_bandwidth": 1.0, "blackwell_cache": 1.0, "blackwell_products": 0.9, "blackwell_layer": 1.0,
}  # fmt: skip

#: what the numbers may be: shares of a peak stay below what anybody measures of a GPU
BOUNDS = {
    "bandwidth": (0.5, 0.93), "cache": (0.3, 0.93), "dense16": (0.2, 0.8), "dense8": (0.2, 0.75), "dense4": (0.1, 0.7),
    "expert16": (0.02, 0.75), "expert8": (0.02, 0.7), "expert4": (0.02, 0.7), "attention": (0.15, 0.75),
    "experts4": (0.3, 1.05), "experts8": (0.3, 1.05), "experts16": (0.3, 1.05),
    "latent": (0.5, 4.0), "rounds": (0.4, 3.0), "link": (0.4, 1.6), "step": (2e-4, 5e-3),
    "layer": (1e-5, 1e-4), "expert_layer": (0.2e-5, 1e-4), "latent_layer": (0.2e-5, 1e-4), "sequence": (2e-6, 1e-4),
    "blackwell_bandwidth": (0.6, 1.1), "blackwell_cache": (0.6, 1.25), "blackwell_products": (0.4, 1.6),
    "blackwell_layer": (0.6, 1.6), "prefill_layer": (1e-6, 8e-4),
    "turnaround": (0.1, 60.0),
}  # fmt: skip


def reach(n: Numbers, engine: str) -> Reach:
    return Reach(
        bandwidth=n["bandwidth"], experts={4: n["experts4"], 8: n["experts8"], 16: n["experts16"]}, cache=n["cache"],
        latent=n["latent"],
        products={
            (False, 16): n["dense16"], (False, 8): n["dense8"], (False, 4): n["dense4"],
            (True, 16): n["expert16"], (True, 8): n["expert8"], (True, 4): n["expert4"],
        },
        attention=n["attention"], step_s=n["step"], layer_s=n["layer"],
        expert_layer_s=n["expert_layer"], latent_layer_s=n["latent_layer"], prefill_layer_s=n["prefill_layer"],
        sequence_s=n["sequence"], rounds=n["rounds"], link=n["link"], request_s=REQUEST_S,
        steps_ahead=STEPS_AHEAD[engine], turnaround_steps=n["turnaround"],
    )  # fmt: skip


def generations(n: Numbers) -> dict[str, Generation]:
    return {
        "blackwell": Generation(
            n["blackwell_bandwidth"], n["blackwell_cache"], n["blackwell_products"], n["blackwell_layer"]
        )
    }


def profile(point: Point, own: Reach, others: dict[str, Generation]) -> Profile:
    times = step_times(point.work, point.gpu, point.layout, own, others, inside(point.gpu))
    return Profile(
        name="candidate", step_fixed_s=times.step_fixed_s, prefill_token_s=times.prefill_token_s,
        decode_seq_s=times.decode_seq_s, kv_token_s=times.kv_token_s, kv_tokens=max(64, point.kv_tokens),
        max_num_seqs=point.slots, max_num_batched_tokens=point.batched_tokens, weights_s=times.weights_s,
        experts_s=times.experts_s, expert_share=times.expert_share, sequence_s=times.sequence_s,
        attention_s=times.attention_s, prefill_step_s=times.prefill_step_s,
        request_s=times.request_s, steps_ahead=times.steps_ahead,
        turnaround_steps=times.turnaround_steps,
    )  # fmt: skip


def answer(point: Point, candidate: Profile) -> Expected:
    if point.rate is not None and point.concurrency is None:
        return at_rate(candidate, point.rate, point.input, point.output, cached_tokens=point.cached)
    assert point.concurrency is not None
    return operating_point(candidate, point.concurrency, point.prompt, point.reply, rounds=BENCHMARK_ROUNDS)


def loss(rows: Sequence[Point], n: Numbers) -> float:
    own, others, total = reach(n, rows[0].engine), generations(n), 0.0
    sizes = Counter(point.group for point in rows)
    for point in rows:
        candidate = profile(point, own, others)
        told = answer(point, candidate)
        miss = min(abs(math.log(told.tpot_s / (point.tpot_s or math.nan))), math.log(1.8))
        if point.ttft_s and point.ttft_s < 3 and math.isfinite(told.ttft_s):
            miss += TTFT_WEIGHT * min(abs(math.log(told.ttft_s / point.ttft_s)), math.log(3))
        total += miss / math.sqrt(sizes[point.group])
    return total / sum(math.sqrt(size) for size in sizes.values())


def weight(rows: Sequence[Point]) -> float:
    return sum(math.sqrt(size) for size in Counter(point.group for point in rows).values())


def search(start: Numbers, cost: Callable[[Numbers], float], *, rounds: int, quiet: bool = True) -> Numbers:
    best, value = dict(start), cost(start)
    width = dict.fromkeys(start, 0.25)
    for _ in range(rounds):
        for name in start:
            low, high = BOUNDS.get(name.split()[0], (0.0, math.inf))
            for sign in (1, -1):
                tried = {**best, name: min(high, max(low, best[name] * math.exp(sign * width[name])))}
                new = cost(tried)
                if new < value - 1e-7:
                    best, value = tried, new
                    width[name] = min(0.4, width[name] * 1.3)
                    break
            else:
                width[name] /= 2
        if not quiet:
            print(f"{value:.4f}", rounded(best), file=sys.stderr)
    return best


def fitted(rows: Mapping[str, Sequence[Point]]) -> dict[str, Numbers]:
    """Each engine's numbers from these rows, by the engine's name."""
    weights = {engine: weight(some) for engine, some in rows.items()}
    start = {name: value for name, value in START.items() if name != TURNAROUND}
    start |= {f"{TURNAROUND} {engine}": START[TURNAROUND] for engine in rows}

    def of(engine: str, shared: Numbers) -> Numbers:
        own = {name: value for name, value in shared.items() if not name.startswith(TURNAROUND)}
        return own | {TURNAROUND: shared[f"{TURNAROUND} {engine}"]}

    def together(shared: Numbers) -> float:
        total = sum(weights[engine] * loss(some, of(engine, shared)) for engine, some in rows.items())
        return total / sum(weights.values())

    def held(some: Sequence[Point], to: Numbers, by: float, own: Numbers) -> float:
        moved = [abs(math.log(own[name] / value)) for name, value in to.items() if name != TURNAROUND]
        return loss(some, own) + by * sum(moved) / len(moved)

    shared = search(start, together, rounds=5)
    found = {}
    for engine, some in rows.items():
        to, by = of(engine, shared), HELD[engine]
        found[engine] = (
            search(START, partial(loss, some), rounds=8)
            if by is None
            else search(to, partial(held, some, to, by), rounds=4)
        )
    return found


def training(keep: Callable[[Point], bool]) -> dict[str, list[Point]]:
    """Closed loops of all engines and, for vLLM, the open-loop runs of 0.15.1 and the lower half (8 req/s and less) of
    one ladder, whose upper half with the knee no fit ever sees; of all these, what is kept."""
    found = {engine: [point for point in closed_loop(engine) if keep(point)] for engine in STEPS_AHEAD}
    lower = [point for point in ladder() if (point.rate or 0) <= 8]
    found["vllm"] += [point for point in (*stages(), *lower) if keep(point)]
    return {engine: rows for engine, rows in found.items() if rows}


def rounded(numbers: Numbers) -> Numbers:
    return {name: float(f"{value:.3g}") for name, value in numbers.items()}


def main() -> None:
    halves = [fitted(training(lambda point: point.fold == 0)), fitted(training(lambda point: point.fold == 1))]
    folds = {engine: [rounded(half[engine]) for half in halves] for engine in sorted(STEPS_AHEAD)}
    FOLDS.write_text(json.dumps(folds, indent=1) + "\n")
    for engine, numbers in fitted(training(lambda point: True)).items():
        print(engine, rounded(numbers))


if __name__ == "__main__":
    main()
