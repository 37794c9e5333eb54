"""Cost of the engine model: µs of processor time per request and per token, step by step and jumping.

    python benchmarks/engine_model.py [--requests 20000] [--rounds 3]

One engine (the built-in profile a100-7b), Poisson arrivals, prompts of 400–600 and outputs of 150–250 tokens, driven
as the cluster simulator drives it: advance() to each arrival and to each next_at(). Then what the cost grows with:
the load, the prefix cache (nothing shared; shared prefixes of 512 tokens; prompts of 12,000 tokens of which half are
shared), slots, output length, number of requests. The least of the rounds counts: a busy machine only adds.
"""

from __future__ import annotations

import argparse
import random
import time
from dataclasses import dataclass, replace
from typing import Any

from kilocard.perf.builtin import A100_7B
from kilocard.perf.profile import Profile
from kilocard.sim.engine import Engine
from kilocard.sim.fast import FastEngine


@dataclass(frozen=True)
class Load:
    requests: int
    rate_per_s: float
    prompt: tuple[int, int] = (400, 600)
    output: tuple[int, int] = (150, 250)
    #: prefix blocks of 512 tokens, of how many different texts
    shared: int = 0
    texts: int = 20


@dataclass(frozen=True)
class Cost:
    us_per_request: float
    us_per_token: float
    running: float
    preempted: int
    hit_share: float


def play(kind: type[Engine], profile: Profile, load: Load, **limits: Any) -> Cost:
    rng = random.Random(1)
    at = 0.0
    arrivals = []
    for number in range(load.requests):
        at += rng.expovariate(load.rate_per_s)
        text = rng.randrange(load.texts)
        blocks = tuple(1000 * text + place for place in range(load.shared))
        arrivals.append((at, str(number), rng.randint(*load.prompt), rng.randint(*load.output), blocks))
    engine = kind(profile, **limits)
    running = 0
    start = time.process_time()
    wake = engine.next_at()
    for now, name, prompt, output, blocks in arrivals:
        while wake <= now:
            engine.advance(wake)
            wake = engine.next_at()
        engine.advance(now)
        engine.add(name, prompt, output, now, blocks=blocks, block_tokens=512)
        wake = engine.next_at()
        running += engine.running
    while not engine.idle:
        engine.advance(engine.next_at())
    spent = (time.process_time() - start) * 1e6
    counters = engine.counters
    return Cost(
        us_per_request=spent / load.requests,
        us_per_token=spent / counters.generation_tokens,
        running=running / load.requests,
        preempted=counters.preempted,
        hit_share=counters.prefix_hits / counters.prefix_queries,
    )


def best(rounds: int, kind: type[Engine], profile: Profile, load: Load, **limits: Any) -> Cost:
    return min((play(kind, profile, load, **limits) for _ in range(rounds)), key=lambda cost: cost.us_per_request)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    many, few = options.requests, max(200, options.requests // 10)
    print(f"{'':44}  µs/request  µs/token  running  preempted  prefix hits")

    def row(name: str, kind: type[Engine], load: Load, profile: Profile = A100_7B, **limits: Any) -> float:
        cost = best(options.rounds, kind, profile, load, **limits)
        print(
            f"{name:44}  {cost.us_per_request:10.1f}  {cost.us_per_token:8.3f}  {cost.running:7.1f}  "
            f"{cost.preempted:9}  {cost.hit_share:11.1%}"
        )
        return cost.us_per_request

    slow = row("step by step, 3.5 requests/s", Engine, Load(few, 3.5))
    fast = row("jumping, the same", FastEngine, Load(few, 3.5))
    print(f"{'':44}  {slow / fast:.1f} times as fast")
    for rate in (0.5, 2.0, 3.5, 5.0):
        row(f"jumping, {rate} requests/s", FastEngine, Load(many, rate))
    small = replace(A100_7B, kv_tokens=14_000)
    row("jumping, 3.5/s, too little KV memory", FastEngine, Load(few, 3.5), small)
    row("step by step, the same", Engine, Load(few, 3.5), small)
    row("prefix cache, nothing shared", FastEngine, Load(many, 3.5), prefix_cache=True)
    row(
        "prefix cache, 512 of 500–700 tokens shared",
        FastEngine,
        Load(many, 3.5, (520, 700), shared=1),
        prefix_cache=True,
    )
    long = Load(few, 0.3, (11_000, 13_000), (300, 400), shared=12)
    row("prefix cache, 6,144 of 12,000 tokens shared", FastEngine, long, prefix_cache=True)
    row("  the same, KV blocks of 128", FastEngine, long, replace(A100_7B, block_size=128), prefix_cache=True)
    for slots in (8, 32, 128, 512):
        wide = replace(A100_7B, max_num_seqs=slots)
        row(f"{slots} slots, all taken", FastEngine, Load(many, 1000.0), wide)
    for tokens in (50, 200, 800, 3200):
        # The same number of requests at once.
        rate = 3.5 * 200 / tokens
        row(f"outputs of {tokens} tokens", FastEngine, Load(few, rate, output=(tokens, tokens)))
    for requests in (many // 10, many, many * 5):
        row(f"{requests} requests", FastEngine, Load(requests, 3.5))


if __name__ == "__main__":
    main()
