"""Is prefix_affinity first or equal where nobody tuned it? Other seeds, sizes, gateways and traffic than the study's.

    python -m benchmarks.policy_study.held_out --traces DIR

Twelve replicas, gauges every 2 s. Two of the study's traces with other arrivals at 75 %, and three kinds of made-up
conversations: chats, agents, and prompts that share nothing. Prints p95 TTFT in seconds (mean of the seeds), who is
lower than prefix_affinity by more than noise (numbers.py), and the share of prompt tokens that it found in caches.
Some four minutes of processor time.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.policy_study.cases import BLOCK_TOKENS, Case
from benchmarks.policy_study.numbers import Cell, compare
from benchmarks.policy_study.play import MODEL, Study, Traces, numbers, played, read_pools
from kilocard.sim.scenario import Scenario, Signals
from kilocard.spec.model import ModelSpec
from kilocard.workload.arrivals import Poisson
from kilocard.workload.lengths import Fixed, Lognormal, Uniform
from kilocard.workload.sessions import Chat, sessions

REPLICAS = 12
SCRAPE_S = 2.0
SEEDS = (21, 22, 23)
LOAD = 75
OTHERS = ("least_connections", "queue_depth", "adaptive")
OWN = "prefix_affinity"
TRACES = ("mooncake-conv", "mooncake-synth")
GATEWAYS = (2, 8, 32)
#: what is said, and sessions a second and replica
CHATS = {
    "chats": (Chat(Lognormal(180, 900), Lognormal(220, 900), Uniform(1, 12), 12.0, 1024, 4), 0.9),
    "agents": (Chat(Lognormal(900, 4000), Lognormal(120, 400), Uniform(4, 24), 1.5, 6144, 1), 0.2),
    "nothing shared": (Chat(Lognormal(2000, 9000), Lognormal(200, 800), Fixed(1), 0.0), 3.5),
}
#: seconds of arrivals of sessions that are not counted, and all of them
WARM_S, CHATS_S = 20.0, 50.0

Run = Callable[[Study, str, int, str, int], dict[str, Any]]


def on_trace(study: Study, trace: str, gateways: int, policy: str, seed: int) -> dict[str, Any]:
    return study.run(Case("herding", trace, policy, seed, LOAD, gateways, SCRAPE_S))


def on_chats(study: Study, kind: str, gateways: int, policy: str, seed: int) -> dict[str, Any]:
    chat, rate = CHATS[kind]
    rng = Random(f"{kind} {seed}")
    work = list(sessions(replace(chat, block_tokens=BLOCK_TOKENS), Poisson(rate * REPLICAS), rng, duration_s=CHATS_S))
    pool = replace(study.pools["a100"], replicas=REPLICAS)
    scenario = Scenario(
        {MODEL: ModelSpec(MODEL, {pool.name: 1}, policy)}, (pool,), gateways=gateways,
        signals=Signals(scrape_s=SCRAPE_S), seed=seed, sample_s=3600.0,
    )  # fmt: skip
    return numbers(played(scenario, work), WARM_S, CHATS_S)


def rows(study: Study) -> Iterator[str]:
    asked: list[tuple[Run, str, int]] = [(on_chats, kind, gateways) for kind in CHATS for gateways in (1, *GATEWAYS)]
    asked += [(on_trace, trace, gateways) for trace in TRACES for gateways in GATEWAYS]
    for run, traffic, gateways in asked:
        cells: dict[str, Cell] = {}
        hits: list[float] = []
        for policy in (*OTHERS, OWN):
            found = {seed: run(study, traffic, gateways, policy, seed) for seed in SEEDS}
            cells[policy] = Cell({seed: each["ttft_p95_s"] for seed, each in found.items()})
            hits = [each["hit_share"] for each in found.values()]
        before = [other for other in OTHERS if compare(iter([(cells[OWN], cells[other])])).higher]
        seconds = (f"{cells[policy].mean:.3g} ±{cells[policy].half_range:.2g}" for policy in (*OTHERS, OWN))
        words = (traffic, str(gateways), *seconds, f"{100 * sum(hits) / len(hits):.1f} %", ", ".join(before) or "–")
        yield f"| {' | '.join(words)} |"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.policy_study.held_out", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--traces", type=Path, default=os.environ.get("KILOCARD_TRACES"))
    o = parser.parse_args()
    if o.traces is None:
        parser.error("--traces DIR, or KILOCARD_TRACES: the folder with the public traces")
    head = ("traffic", "gateways", *OTHERS, OWN, "found in caches", "lower")
    print(f"| {' | '.join(head)} |\n| {' | '.join('---' for _ in head)} |", flush=True)
    for row in rows(Study(Traces(o.traces), read_pools(), replicas=REPLICAS)):
        print(row, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
