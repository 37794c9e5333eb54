"""Time to first token by policy, under mixed long and short requests: the real dispatcher over emulated replicas.

    python benchmarks/routing_quality.py [--replicas 8] [--seconds 300] [--seeds 3] [--policies a,b]

Each replica is a small continuous-batching engine: token budget per step, slots (max_num_seqs), paged KV with
preemption and recompute. Speeds are round numbers of a 7B model on one large card. Nothing is measured on the wall
clock, so results repeat exactly for a seed. The policies see gauges once a second and never the true output length.
"""

from __future__ import annotations

import argparse
import heapq
import random
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from kilocard.core.load import LoadSample
from kilocard.dispatch import events as ev
from kilocard.dispatch.config import PoolFacts
from kilocard.dispatch.dispatcher import Dispatcher
from kilocard.dispatch.instructions import Refuse, Send
from kilocard.spec.model import HoldSpec, ModelSpec, OverheatSpec

STEP_BASE = 0.008  # s: weights are read once per step
STEP_PER_SEQUENCE = 0.00008  # s
STEP_PER_PREFILL_TOKEN = 0.00006  # s: about 16,000 tokens/s
TOKEN_BUDGET = 2048  # per step, decode first: chunked prefill
WATERMARK = 0.99


class Job:
    __slots__ = ("arrived", "done", "id", "output", "prefilled", "prompt", "short")

    def __init__(self, id: int, arrived: float, prompt: int, output: int, short: bool) -> None:
        self.id, self.arrived, self.prompt, self.output, self.short = id, arrived, prompt, output, short
        self.prefilled = 0
        self.done = 0


class Engine:
    def __init__(self, slots: int, kv_tokens: int) -> None:
        self.slots, self.kv_tokens = slots, kv_tokens
        self.waiting: deque[Job] = deque()
        self.running: list[Job] = []
        self.kv = 0
        self.busy = False
        self.preemptions = 0

    def admit(self, job: Job) -> None:
        """A job begins to run."""

    def release(self, job: Job) -> None:
        """It ends, or is preempted; its tokens have been given back."""

    def plan(self) -> tuple[float, list[Job], list[Job]]:
        """One step from now: its duration, and who gets a first token or ends with it."""
        decoding = [job for job in self.running if job.prefilled >= job.prompt + job.done]
        while self.kv + len(decoding) > self.kv_tokens and len(self.running) > 1:
            victim = self.running.pop()
            self.preemptions += 1
            self.kv -= victim.prefilled
            self.release(victim)
            victim.prefilled = 0
            self.waiting.appendleft(victim)
            decoding = [job for job in decoding if job is not victim]
        budget = TOKEN_BUDGET - len(decoding)
        prefill = 0
        first: list[Job] = []
        prefilling = [job for job in self.running if job.prefilled < job.prompt + job.done]
        while True:
            for job in prefilling:
                take = min(budget, job.prompt + job.done - job.prefilled)
                job.prefilled += take
                budget -= take
                prefill += take
                self.kv += take
                if job.prefilled >= job.prompt + job.done and take:
                    first.append(job)
            if budget <= 0 or not self.waiting or len(self.running) >= self.slots:
                break
            head = self.waiting[0]
            if self.kv + head.prompt + head.done > self.kv_tokens * WATERMARK:
                break
            self.waiting.popleft()
            self.running.append(head)
            self.admit(head)
            prefilling = [head]
        ended: list[Job] = []
        fresh: list[Job] = []
        for job in decoding:
            job.done += 1
            job.prefilled += 1
            self.kv += 1
        for job in first:
            if job.done == 0:
                fresh.append(job)
            job.done += 1
            job.prefilled += 1
            self.kv += 1
        for job in self.running:
            if job.done >= job.output:
                ended.append(job)
        for job in ended:
            self.running.remove(job)
            self.kv -= job.prefilled
            self.release(job)
        duration = STEP_BASE + STEP_PER_SEQUENCE * len(decoding) + STEP_PER_PREFILL_TOKEN * prefill
        return duration, fresh, ended


class Load(NamedTuple):
    name: str
    rate_per_replica: float
    slots: int
    kv_tokens: int
    long_share: float
    declared: str  # what clients put in max_tokens: "true" or "1024"
    long_prompt: int = 6000
    long_output: int = 600
    short_prompt: int = 300
    short_output: int = 120


LOADS = [
    Load("slots", 5.9, 32, 400_000, 0.15, "1024"),
    Load("slots, honest max_tokens", 5.9, 32, 400_000, 0.15, "true"),
    Load("kv", 3.8, 256, 60_000, 0.15, "1024"),
    Load("kv, honest max_tokens", 3.8, 256, 60_000, 0.15, "true"),
    Load("prefill", 4.6, 256, 400_000, 0.3, "1024", 8000, 100, 200, 100),
    Load("light", 2.0, 256, 400_000, 0.15, "1024"),
]


def lengths(rng: random.Random, load: Load) -> tuple[int, int, bool]:
    short = rng.random() >= load.long_share
    p, o = (load.short_prompt, load.short_output) if short else (load.long_prompt, load.long_output)
    return max(1, int(p * rng.lognormvariate(0, 0.4))), max(2, int(o * rng.lognormvariate(0, 0.6))), short


def arrivals(rng: random.Random, rate: float, seconds: float) -> Iterator[float]:
    now = 0.0
    while (now := now + rng.expovariate(rate)) < seconds:
        yield now


def run(policy: str, load: Load, replicas: int, seconds: float, seed: int, scrape: float = 1.0) -> dict[str, float]:
    world = random.Random(seed)
    spec = ModelSpec("m", {"p": 1}, policy=policy, overheat=OverheatSpec(), hold=HoldSpec(100_000, 1e6))
    slots = load.slots if load.slots < 256 else None
    dispatcher = Dispatcher({"m": spec}, {"p": PoolFacts(slots)}, random.Random(seed + 1000), scrape_interval=scrape)
    engines = {f"r{i}": Engine(load.slots, load.kv_tokens) for i in range(replicas)}
    jobs: dict[int, Job] = {}
    ttft: list[float] = []
    ttft_short: list[float] = []
    queue: list[tuple[float, int, str, object]] = []
    order = 0

    def at(when: float, what: str, subject: object) -> None:
        nonlocal order
        order += 1
        heapq.heappush(queue, (when, order, what, subject))

    def do(now: float, event: ev.Event) -> None:
        for instruction in dispatcher.handle(event):
            if isinstance(instruction, Send):
                engine = engines[instruction.replica]
                engine.waiting.append(jobs[instruction.request])
                if not engine.busy:
                    engine.busy = True
                    at(now, "step", instruction.replica)
            elif isinstance(instruction, Refuse):
                raise instruction.error

    for i, name in enumerate(engines):
        do(0.0, ev.ReplicaUp(0.0, name, "p"))
        at(scrape * (i + 1) / replicas, "scrape", name)
    for n, when in enumerate(arrivals(world, load.rate_per_replica * replicas, seconds)):
        jobs[n] = Job(n, when, *lengths(world, load))
        at(when, "arrive", jobs[n])
    at(0.1, "tick", None)
    results: dict[str, tuple[list[Job], list[Job]]] = {}
    open_jobs = len(jobs)
    while open_jobs:
        now, _, what, subject = heapq.heappop(queue)
        if what == "arrive":
            assert isinstance(subject, Job)
            declared = subject.output if load.declared == "true" else 1024
            do(now, ev.Arrived(now, subject.id, "m", subject.prompt, declared, now + 1e6))
        elif what == "step":
            assert isinstance(subject, str)
            engine = engines[subject]
            fresh, ended = results.pop(subject, ([], []))
            for job in fresh:
                ttft.append(now - job.arrived)
                if job.short:
                    ttft_short.append(now - job.arrived)
                do(now, ev.FirstContent(now, job.id))
            for job in ended:
                open_jobs -= 1
                do(now, ev.Finished(now, job.id, 200, job.output))
            if engine.running or engine.waiting:
                duration, fresh, ended = engine.plan()
                results[subject] = (fresh, ended)
                at(now + duration, "step", subject)
            else:
                engine.busy = False
        elif what == "scrape":
            assert isinstance(subject, str)
            e = engines[subject]
            sample = LoadSample(now, len(e.running), len(e.waiting), e.kv / e.kv_tokens, kv_tokens=e.kv_tokens)
            do(now, ev.Scraped(now, subject, sample))
            at(now + scrape, "scrape", subject)
        else:
            do(now, ev.Tick(now))
            at(now + 0.1, "tick", None)
    ttft.sort()
    ttft_short.sort()
    preempted = sum(engine.preemptions for engine in engines.values())
    return {
        "p50": ttft[len(ttft) // 2],
        "p95": ttft[int(len(ttft) * 0.95)],
        "p99": ttft[int(len(ttft) * 0.99)],
        "mean": sum(ttft) / len(ttft),
        "short95": ttft_short[int(len(ttft_short) * 0.95)],
        "preempt": preempted,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicas", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=200.0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--scrape", type=float, default=1.0)
    parser.add_argument("--policies", default="round_robin,least_connections,queue_depth,adaptive")
    parser.add_argument("--only", help="a load whose name begins so")
    args = parser.parse_args()
    for load in LOADS:
        if args.only and not load.name.startswith(args.only):
            continue
        print(f"\n{load.name}: {load}")
        print(f"{'policy':<20}{'p50':>9}{'p95':>9}{'p99':>9}{'mean':>9}{'short p95':>11}{'preempted':>11}   TTFT, s")
        for policy in args.policies.split(","):
            runs = [run(policy, load, args.replicas, args.seconds, seed, args.scrape) for seed in range(args.seeds)]
            mean = {key: sum(r[key] for r in runs) / len(runs) for key in runs[0]}
            print(
                f"{policy:<20}{mean['p50']:9.3f}{mean['p95']:9.3f}{mean['p99']:9.3f}{mean['mean']:9.3f}"
                f"{mean['short95']:11.3f}{mean['preempt']:11.0f}"
            )


if __name__ == "__main__":
    main()
