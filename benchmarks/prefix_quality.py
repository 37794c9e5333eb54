"""What routing by cached prefixes is worth: the real dispatcher over emulated replicas with prefix caches.

    python benchmarks/prefix_quality.py [--replicas 8] [--seconds 300] [--seeds 2] [--policies a,b] [--only chat]
    KILOCARD_TRACES=DIR python benchmarks/prefix_quality.py --only mooncake

`hit` is the share of the prompt tokens that the replicas had in their caches, `told` what the policy expected of that;
times are seconds to the first token. `gateways`: several that see each other only in the replicas' gauges, once a
second; each request comes to one of them by chance. Replicas are those of routing_quality.py with a prefix cache:
blocks of 16 tokens (512 in Mooncake's traces), the least recently used go where running requests need room.
"""

from __future__ import annotations

import argparse
import heapq
import os
import random
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from routing_quality import Engine, Job

from kilocard.core.load import LoadSample
from kilocard.core.prefix import of_blocks
from kilocard.dispatch import events as ev
from kilocard.dispatch.config import PoolFacts
from kilocard.dispatch.dispatcher import Dispatcher
from kilocard.dispatch.instructions import Refuse, Send
from kilocard.spec.model import HoldSpec, ModelSpec
from kilocard.workload.arrivals import Poisson
from kilocard.workload.lengths import Fixed, Lognormal, Uniform
from kilocard.workload.read import read_trace
from kilocard.workload.request import WorkloadRequest
from kilocard.workload.reshape import cut, scale, spread
from kilocard.workload.sessions import Chat, sessions

POLICIES = "round_robin,least_connections,queue_depth,prefix_affinity"


class CachingJob(Job):
    __slots__ = ("asked", "shared")

    def __init__(self, id: int, arrived: float, asked: WorkloadRequest) -> None:
        super().__init__(id, arrived, asked.input_tokens, max(2, asked.output_tokens), short=False)
        self.asked = asked
        self.shared = 0


class CachingEngine(Engine):
    """Blocks of prompts stay until running requests need their room; a cached block takes none but its own."""

    def __init__(self, slots: int, kv_tokens: int) -> None:
        super().__init__(slots, kv_tokens)
        self.cache: OrderedDict[int, None] = OrderedDict()
        #: counters as on a metrics page, and of all lives
        self.asked = self.had = self.total_had = 0

    def admit(self, job: Job) -> None:
        assert isinstance(job, CachingJob)
        asked, cache = job.asked, self.cache
        cached = 0
        for block in asked.blocks:
            if block not in cache:
                break
            cached += asked.block_tokens
        job.prefilled = job.shared = cached = min(cached, job.prompt - 1)
        self.asked += job.prompt
        if not job.done:  # not preempted
            self.had += cached
            self.total_had += cached
        for block in reversed(asked.blocks):
            cache[block] = None
            cache.move_to_end(block)
        if asked.blocks:
            room = max(0, self.kv_tokens - self.kv) // asked.block_tokens
            while len(cache) > room:
                cache.popitem(last=False)

    def release(self, job: Job) -> None:
        assert isinstance(job, CachingJob)
        self.kv += job.shared  # it is the cache's
        job.shared = 0


@dataclass(frozen=True)
class Case:
    name: str
    kv_tokens: int = 120_000
    slots: int = 64
    gateways: int = 1
    #: replicas are started anew so often, in seconds
    restart: float = 0.0
    #: one of the replicas takes so many times as long for a step
    slow: float = 1.0
    #: sessions a second and replica; 0: a trace
    rate: float = 0.0
    chat: Chat | None = None
    trace: str = ""
    #: of the trace's own speed, at 8 replicas
    speed: float = 1.0


CHAT = Chat(Lognormal(180, 900), Lognormal(220, 900), Uniform(1, 12), 12.0, system_tokens=1024, system_prompts=4)
AGENT = Chat(Lognormal(900, 4000), Lognormal(120, 400), Uniform(4, 24), 1.5, system_tokens=6144, system_prompts=1)
SINGLE = Chat(Lognormal(2000, 9000), Lognormal(200, 800), Fixed(1), 0.0, system_tokens=0)
HOT = Chat(Lognormal(200, 600), Lognormal(100, 300), Fixed(1), 0.0, system_tokens=8192, system_prompts=1)
CASES = [
    Case("nothing shared", rate=4.0, chat=SINGLE),
    Case("chat", rate=0.85, chat=CHAT),
    Case("chat, 4 gateways", rate=0.85, chat=CHAT, gateways=4),
    Case("chat, restarts", rate=0.85, chat=CHAT, restart=60.0),
    Case("chat, one slow replica", rate=0.75, chat=CHAT, slow=2.0),
    Case("agents", rate=0.3, chat=AGENT, kv_tokens=400_000),
    Case("agents, 4 gateways", rate=0.3, chat=AGENT, kv_tokens=400_000, gateways=4),
    Case("one hot prompt", rate=12.0, chat=HOT),
    Case("one hot prompt, 4 gateways", rate=12.0, chat=HOT, gateways=4),
    Case("mooncake conversation", kv_tokens=1_000_000, trace="mooncake-fast25-conversation.jsonl", speed=0.75),
    Case("mooncake synthetic", kv_tokens=1_000_000, trace="mooncake-fast25-synthetic.jsonl", speed=1.0),
]


def workload(case: Case, replicas: int, seconds: float, seed: int) -> list[WorkloadRequest] | None:
    rng = random.Random(seed)
    if case.chat is not None:
        return list(sessions(case.chat, Poisson(case.rate * replicas), rng, duration_s=seconds))
    folder = os.environ.get("KILOCARD_TRACES")
    if not folder:
        return None
    with (Path(folder) / case.trace).open() as file:
        requests: Sequence[WorkloadRequest] = read_trace(file).requests
    requests = scale(spread(cut(requests, seed * 600.0, seed * 600.0 + seconds), rng), case.speed * replicas / 8, rng)
    first = requests[0].at_s
    return [replace(request, at_s=request.at_s - first) for request in requests]


def run(policy: str, case: Case, requests: list[WorkloadRequest], replicas: int, seed: int) -> dict[str, float]:
    world = random.Random(seed + 77)
    spec = ModelSpec("m", {"p": 1}, policy=policy, hold=HoldSpec(100_000, 1e6))
    gateways = [
        Dispatcher({"m": spec}, {"p": PoolFacts(case.slots)}, random.Random(seed + 1000 + n))
        for n in range(case.gateways)
    ]
    engines = {f"r{i}": CachingEngine(case.slots, case.kv_tokens) for i in range(replicas)}
    jobs: dict[int, CachingJob] = {}
    via: dict[int, Dispatcher] = {}
    ttft: list[float] = []
    told = sent = 0
    most = 0.0
    queue: list[tuple[float, int, str, object]] = []
    order = 0
    turns: dict[str, list[WorkloadRequest]] = {}

    def at(when: float, what: str, subject: object) -> None:
        nonlocal order
        order += 1
        heapq.heappush(queue, (when, order, what, subject))

    def do(now: float, gateway: Dispatcher, event: ev.Event) -> None:
        nonlocal told
        for instruction in gateway.handle(event):
            if isinstance(instruction, Send):
                engine = engines[instruction.replica]
                engine.waiting.append(jobs[instruction.request])
                told += instruction.decision.cached
                if not engine.busy:
                    engine.busy = True
                    at(now, "step", instruction.replica)
            elif isinstance(instruction, Refuse):
                raise instruction.error

    for gateway in gateways:
        for name in engines:
            do(0.0, gateway, ev.ReplicaUp(0.0, name, "p"))
        for i, name in enumerate(engines):
            at((i + world.random()) / replicas, "scrape", (gateway, name))
    for request in requests:
        if request.session is None:
            at(request.at_s, "arrive", request)
        elif request.turn == 0:
            turns[request.session] = []
            at(request.at_s, "arrive", request)
        else:
            turns[request.session].append(request)
    if case.restart:
        at(case.restart, "restart", None)
    at(0.1, "tick", None)
    results: dict[str, tuple[list[Job], list[Job]]] = {}
    left = len(requests)
    while left:
        now, _, what, subject = heapq.heappop(queue)
        if what == "arrive":
            assert isinstance(subject, WorkloadRequest)
            sent += 1
            job = jobs[sent] = CachingJob(sent, now, subject)
            gateway = via[sent] = world.choice(gateways)
            prefix = None
            if policy == "prefix_affinity" and subject.blocks:
                prefix = of_blocks(subject.input_tokens, subject.blocks, subject.block_tokens, subject.session)
            do(now, gateway, ev.Arrived(now, sent, "m", job.prompt, 512, now + 1e6, prefix=prefix))
        elif what == "step":
            assert isinstance(subject, str)
            engine = engines[subject]
            fresh, ended = results.pop(subject, ([], []))
            for job in fresh:
                ttft.append(now - job.arrived)
                do(now, via[job.id], ev.FirstContent(now, job.id))
            for job in ended:
                left -= 1
                do(now, via[job.id], ev.Finished(now, job.id, 200, job.output))
                session = jobs[job.id].asked.session
                if session is not None and turns[session]:
                    following = turns[session].pop(0)
                    at(now + following.think_s, "arrive", following)
            if engine.running or engine.waiting:
                duration, fresh, ended = engine.plan()
                results[subject] = (fresh, ended)
                at(now + duration * (case.slow if subject == "r0" else 1.0), "step", subject)
            else:
                engine.busy = False
        elif what == "scrape":
            gateway, name = subject  # type: ignore[misc]  # as it was put in
            e = engines[name]
            most = max(
                most,
                (len(e.running) + len(e.waiting))
                * replicas
                / max(8 * replicas, sum(len(x.running) + len(x.waiting) for x in engines.values())),
            )
            usage = min(1.0, e.kv / e.kv_tokens)
            counters = {"prefix_queries_total": e.asked, "prefix_hits_total": e.had}
            sample = LoadSample(now, len(e.running), len(e.waiting), usage, kv_tokens=e.kv_tokens, **counters)
            do(now, gateway, ev.Scraped(now, name, sample))
            at(now + 1.0, "scrape", subject)
        elif what == "restart":  # quicker than anybody notices, with an empty cache
            e = engines[world.choice(list(engines))]
            e.cache.clear()
            e.asked = e.had = 0
            at(now + case.restart, "restart", None)
        else:
            for gateway in gateways:
                do(now, gateway, ev.Tick(now))
            at(now + 0.1, "tick", None)
    ttft.sort()
    tokens = sum(request.input_tokens for request in requests)
    return {
        "hit": sum(e.total_had for e in engines.values()) / tokens,
        "told": told / tokens,
        "p50": ttft[len(ttft) // 2],
        "p95": ttft[int(len(ttft) * 0.95)],
        "p99": ttft[int(len(ttft) * 0.99)],
        "mean": sum(ttft) / len(ttft),
        "most": most,
    }


def endless(requests: list[WorkloadRequest]) -> float:
    """Hit share of one endless cache: no routing can do better."""
    seen: set[int] = set()
    hits = 0
    for request in requests:
        for block in request.blocks:
            hits += request.block_tokens if block in seen else 0
        seen.update(request.blocks)
    return hits / sum(request.input_tokens for request in requests)


def wanted(only: str | None) -> Iterator[Case]:
    return (case for case in CASES if not only or case.name.startswith(only))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicas", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--policies", default=POLICIES)
    parser.add_argument("--only", help="cases whose names begin so")
    args = parser.parse_args()
    for case in wanted(args.only):
        loads = [workload(case, args.replicas, args.seconds, seed) for seed in range(args.seeds)]
        real = [load for load in loads if load is not None]
        if not real:
            print(f"\n{case.name}: left out, KILOCARD_TRACES is not set")
            continue
        ceiling = sum(map(endless, real)) / len(real)
        print(f"\n{case.name}: {sum(map(len, real))} requests, hit share of one endless cache {ceiling:.3f}")
        print(f"{'policy':<20}{'hit':>7}{'told':>7}{'p50':>9}{'p95':>9}{'p99':>9}{'mean':>9}{'most':>7}")
        for policy in args.policies.split(","):
            runs = [run(policy, case, load, args.replicas, seed) for seed, load in enumerate(real)]
            mean = {key: sum(r[key] for r in runs) / len(runs) for key in runs[0]}
            print(
                f"{policy:<20}{mean['hit']:7.3f}{mean['told']:7.3f}{mean['p50']:9.3f}{mean['p95']:9.3f}"
                f"{mean['p99']:9.3f}{mean['mean']:9.3f}{mean['most']:7.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
