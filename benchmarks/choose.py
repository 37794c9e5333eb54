"""Cost of a decision among 1,000 replicas: µs of processor time.

    python benchmarks/choose.py [--replicas 1000] [--rounds 5]

`choose+update` is choose(), begin() on the target and update() of its place in the index. `dispatcher` is one whole
request: Arrived, Answered, FirstContent, Finished, each with the making of its event, with four requests in flight
per replica. `scan` is the same choice by min() over all replicas, in the same run, to compare with. `tick` is one
Tick over all replicas, `scrape` one Scraped event. `held` is a request that ends while 100,000 of 1,000 tenants wait:
its end, the release of the next one, and another arrival that is held; `short queue` is the same with 1,000. The least
of the rounds counts: a busy machine only adds. `cached prompts` is choose+update of prefix_affinity for prompts that
are known, `several gateways` the same where others send too, so that each prompt has a home, `caches full` the worst
of a usual day: each turn writes something new, something else is evicted for it, and two replicas have changed since
the choice before. `hash of a prompt` is what a gateway pays to know how one begins; lines of its system prompt are 80
characters.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import random
import time
from collections import deque
from collections.abc import Callable, Iterator

from kilocard.core.load import LoadSample
from kilocard.core.prefix import Prefix, block_keys, key_of
from kilocard.dispatch.config import PoolFacts
from kilocard.dispatch.dispatcher import Dispatcher
from kilocard.dispatch.events import Answered, Arrived, Event, Finished, FirstContent, ReplicaUp, Scraped, Tick
from kilocard.dispatch.instructions import Send
from kilocard.routing.load import ReplicaLoad
from kilocard.routing.prefix_affinity import PrefixAffinity
from kilocard.routing.queue_depth import QueueDepth
from kilocard.routing.registry import POLICIES, make_policy
from kilocard.spec.model import HoldSpec, ModelSpec
from kilocard.wire.prompt_text import prefix_of

WORDS = ["the", "a", "of", "cache", "which", "replica", "runs", "12", "tokens", "in", "one", "step;", "and", "2026"]


def best(rounds: int, one: Callable[[], float]) -> float:
    return min(one() for _ in range(rounds)) * 1e6


def filled(count: int, *, alone: bool = False) -> list[ReplicaLoad]:
    """`alone`: the gauges show no requests of others."""
    rng = random.Random(3)
    loads = [ReplicaLoad(f"replica-{i}", max_running=64) for i in range(count)]
    for load in loads:
        load.scraped(0.0, LoadSample(0.0, 0 if alone else rng.randrange(8), 0, rng.random(), kv_tokens=300_000))
        for _ in range(rng.randrange(4)):
            load.begin(500, 200)
    return loads


def choose(name: str, count: int, n: int = 20_000) -> float:
    policy = make_policy(name, random.Random(1))
    loads = filled(count)
    by_id = {load.id: load for load in loads}
    for load in loads:
        policy.add(load)
    start = time.process_time()
    for _ in range(n):
        decision = policy.choose()
        assert decision is not None
        load = by_id[decision.target]
        load.begin(500, 200)
        policy.update(load)
    return (time.process_time() - start) / n


def conversations(count: int) -> list[Prefix]:
    """Turns of 4 for each replica, all with one system prompt of 2,000 tokens: 8,000 tokens with 16 keys each."""
    system = list(range(8))
    return [
        Prefix(8000, block_keys([*system, *range(100 * n, 100 * n + 24)], 256), home=key_of(b"%d" % n))
        for n in range(1, 4 * count + 1)
    ]


def choose_cached(count: int, *, alone: bool, n: int = 20_000) -> float:
    """prefix_affinity with full caches: each prompt is known somewhere, its first half everywhere."""
    policy = PrefixAffinity(random.Random(1))
    loads = filled(count, alone=alone)
    by_id = {load.id: load for load in loads}
    for load in loads:
        policy.add(load)
    known = conversations(count)
    rng = random.Random(2)
    asked = known + [rng.choice(known) for _ in range(n)]
    start = 0.0
    for turn, prefix in enumerate(asked):
        if turn == len(known):
            start = time.process_time()
        decision = policy.choose((), prefix)
        assert decision is not None
        load = by_id[decision.target]
        load.begin(prefix.tokens - decision.cached, 200)
        policy.update(load)
    return (time.process_time() - start) / n


def turns_that_grow(count: int, rng: random.Random) -> Iterator[Prefix]:
    """2 conversations for each replica, 512 tokens more each turn up to 32,000; then another one begins."""
    system = range(8)
    live = [(number, 2 * rng.randrange(60)) for number in range(2 * count)]
    for begun in itertools.count(2 * count):
        place = rng.randrange(len(live))
        number, length = live[place]
        if length > 115:
            number, length = begun, 0
        live[place] = number, length + 2
        own = range(1000 * number + 1000, 1000 * number + 1002 + length)
        yield Prefix(256 * (10 + length), block_keys([*system, *own], 256), home=key_of(b"%d" % number))


def choose_growing(count: int, batch: int = 100, batches: int = 200) -> float:
    """prefix_affinity beside other gateways, with full caches: each turn writes something new, and something else goes.
    As many requests end as begin. Prompts are made just before, as in a gateway, so their keys are at hand."""
    rng = random.Random(3)
    policy = PrefixAffinity(random.Random(1))
    loads = filled(count)
    by_id = {load.id: load for load in loads}
    for load in loads:
        load.scraped(0.0, LoadSample(0.0, rng.randrange(8), 0, rng.random(), kv_tokens=60_000))
        policy.add(load)
    source = turns_that_grow(count, rng)
    running: deque[tuple[ReplicaLoad, int]] = deque()
    before, spent = 12 * count // batch, 0.0
    for number in range(before + batches):
        turns = list(itertools.islice(source, batch))
        start = time.process_time()
        for prefix in turns:
            decision = policy.choose((), prefix)
            assert decision is not None
            load = by_id[decision.target]
            tokens = prefix.tokens - decision.cached
            load.begin(tokens, 200)
            policy.update(load)
            running.append((load, tokens))
            if len(running) > 3 * count:
                load, tokens = running.popleft()
                load.end(tokens, 200, True)
                policy.update(load)
        if number >= before:
            spent += time.process_time() - start
    return spent / (batch * batches)


def hashing() -> tuple[float, float]:
    """µs a KB of a chat's body: reading and hashing it, with its system prompt of 4 KB looked through for nonces."""
    rng = random.Random(4)
    words = "\n".join(" ".join(rng.choice(WORDS) for _ in range(15)) for _ in range(1500))
    costs = []
    for size in (8 * 1024, 64 * 1024):
        turns = [{"role": "user", "content": words[at : at + 1000]} for at in range(0, size - 4096, 1000)]
        body = json.dumps({"model": "m", "messages": [{"role": "system", "content": words[:4096]}, *turns]}).encode()
        start = time.process_time()
        for _ in range(200):
            prefix_of("m", body, len(body) // 4)
        costs.append((time.process_time() - start) / 200 / len(body) * 1024 * 1e6)
    return costs[0], costs[1]


def scan(count: int, n: int = 100) -> float:
    score = QueueDepth(random.Random(1)).score
    loads = filled(count)
    start = time.process_time()
    for _ in range(n):
        min(loads, key=score).begin(500, 200)
    return (time.process_time() - start) / n


def dispatcher(name: str, count: int) -> Dispatcher:
    spec = ModelSpec("m", {"p": 1}, policy=name)
    made = Dispatcher({"m": spec}, {"p": PoolFacts(256)}, random.Random(1))
    for i in range(count):
        made.handle(ReplicaUp(0.0, f"replica-{i}", "p"))
    return made


def request(name: str, count: int, n: int = 30_000) -> float:
    handle: Callable[[Event], object] = dispatcher(name, count).handle
    waiting: deque[int] = deque()
    running: deque[int] = deque()
    now = 0.0
    for id in range(4 * count):
        handle(Arrived(now, id, "m", 500, 200, 1e9))
        waiting.append(id)
        if len(waiting) > 2 * count:
            done = waiting.popleft()
            handle(FirstContent(now, done))
            running.append(done)
    start = time.process_time()
    for id in range(4 * count, 4 * count + n):
        now += 1e-4
        handle(Arrived(now, id, "m", 500, 200, 1e9))
        waiting.append(id)
        first = waiting.popleft()
        handle(Answered(now, first, 200))
        handle(FirstContent(now, first))
        running.append(first)
        handle(Finished(now, running.popleft(), 200, 150))
    return (time.process_time() - start) / n


def housekeeping(name: str, count: int) -> tuple[float, float]:
    made = dispatcher(name, count)
    start = time.process_time()
    for i in range(count):
        made.handle(Scraped(0.1, f"replica-{i}", LoadSample(0.1, 3, 0, 0.4, kv_tokens=300_000)))
    scraped = (time.process_time() - start) / count
    start = time.process_time()
    for n in range(20):
        made.handle(Tick(0.2 + n * 0.01))
    return scraped, (time.process_time() - start) / 20


def held(count: int, n: int = 20_000) -> float:
    spec = ModelSpec("m", {"p": 1}, hold=HoldSpec(10**6, 1e6))
    made = Dispatcher({"m": spec}, {"p": PoolFacts(max_in_flight=1)}, random.Random(1))
    made.handle(ReplicaUp(0.0, "replica", "p"))
    for id in range(count + 1):
        made.handle(Arrived(0.0, id, "m", 500, 200, 1e9, f"tenant-{id % 1000}"))
    running = 0
    start = time.process_time()
    for id in range(count + 1, count + 1 + n):
        made.handle(Arrived(1.0, id, "m", 500, 200, 1e9, f"tenant-{id % 1000}"))
        for said in made.handle(Finished(1.0, running, 200, 150)):
            assert isinstance(said, Send)
            running = said.request
    return (time.process_time() - start) / n


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicas", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    count = args.replicas
    gc.set_threshold(50_000, 20, 50)  # as cli/running.py has it
    print(f"{count} replicas, µs of CPU\n{'policy':<20}{'choose+update':>15}{'dispatcher':>12}{'scrape':>9}{'tick':>9}")
    for name in POLICIES:
        chosen = best(args.rounds, lambda name=name: choose(name, count))  # type: ignore[misc]  # bound now
        whole = best(args.rounds, lambda name=name: request(name, count))  # type: ignore[misc]  # same
        scraped, tick = (
            min(x) * 1e6 for x in zip(*(housekeeping(name, count) for _ in range(args.rounds)), strict=True)
        )
        print(f"{name:<20}{chosen:15.2f}{whole:12.2f}{scraped:9.2f}{tick:9.0f}")
    for alone, name in ((True, "… cached prompts"), (False, "… several gateways")):
        cached = best(args.rounds, lambda alone=alone: choose_cached(count, alone=alone))  # type: ignore[misc]  # same
        print(f"{name:<20}{cached:15.2f}")
    print(f"{'… and caches full':<20}{best(args.rounds, lambda: choose_growing(count)):15.2f}")
    print(f"{'hash of a prompt':<20}{' of 8 KB: {:.1f}, of 64 KB: {:.1f} µs a KB'.format(*hashing())}")
    print(f"{'scan of all':<20}{best(3, lambda: scan(count)):15.2f}")
    print(f"{'held':<20}{'':15}{best(3, lambda: held(100_000)):12.2f}")
    print(f"{'short queue':<20}{'':15}{best(3, lambda: held(1_000)):12.2f}")


if __name__ == "__main__":
    main()
