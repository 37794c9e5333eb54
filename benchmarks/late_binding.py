"""`python -m benchmarks.late_binding`: is it better to wait in the gateway, and who waits when one tenant floods?

The simulator's cluster (`sim.cluster`: the real dispatcher before engine models with continuous batching, chunked
prefill and paged KV), all on virtual time: nothing is measured on the wall clock, so a seed always gives the same
numbers, on any machine. Engines' gauges are read once a second, and nobody knows an answer's length before its end.

First part: mostly short and a few long requests arrive at a share of the capacity that is measured first. The same
arrivals are played with several values of `overheat.waiting`, the queue from which a replica gets nothing more, and
with none: everything goes straight to the engines. Once all are one tenant's, first come, first served; once all are
one tenant's, whose short and long ones take turns (as the gateway does it); once the long ones are another tenant's.
Second part: one tenant floods, another sends one request a second; with fair sharing, and first come, first served
(all under one name). Third: four tenants that ask for all that they can get, with requests of different sizes;
Jain's index of what they got.

Exit 0: every request got its answer. 1: some did not.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from math import inf
from statistics import mean, median
from typing import Any
from unittest.mock import patch

from kilocard.dispatch import fair
from kilocard.dispatch.config import PoolFacts
from kilocard.dispatch.events import Arrived, Event
from kilocard.dispatch.fair import cost
from kilocard.perf.builtin import builtin
from kilocard.sim.cluster import Cluster
from kilocard.sim.collector import COMPLETED
from kilocard.sim.scenario import PoolModel, Scenario, Signals
from kilocard.spec.model import HoldSpec, ModelSpec, OverheatSpec, Timeouts
from kilocard.workload.request import WorkloadRequest

MODEL = "m"
#: `overheat.waiting` that no queue reaches, and a KV threshold above full
STRAIGHT = OverheatSpec(waiting=1e9, kv_usage=2.0)
#: nobody gives up here
PATIENT = Timeouts(first_token=1e6, idle=1e6, total=1e6)


@dataclass(frozen=True)
class Shape:
    """Tokens of prompt and answer, what the client declares, and a share of the arrivals."""

    prompt: int
    answer: int
    declared: int
    share: float = 1.0


SHORT = Shape(100, 30, 128)


def mix(long_share: float) -> tuple[Shape, ...]:
    return (
        Shape(SHORT.prompt, SHORT.answer, SHORT.declared, 1 - long_share),
        Shape(4000, 400, 1024, long_share),
    )


@dataclass
class Job:
    at: float
    shape: Shape
    tenant: str = ""
    first: float | None = None
    end: float | None = None
    #: whose request it is, where all go by one name
    owner: str = ""

    def request(self) -> WorkloadRequest:
        shape = self.shape
        return WorkloadRequest(self.at, shape.prompt, shape.answer, tenant=self.tenant, max_tokens=shape.declared)


def poisson(rng: random.Random, rate: float, seconds: float) -> Iterator[float]:
    now = rng.expovariate(rate)
    while now < seconds:
        yield now
        now += rng.expovariate(rate)


@dataclass
class World:
    """One cluster; `play` writes into the jobs when each had its first token and its end."""

    options: argparse.Namespace
    overheat: OverheatSpec
    seed: int
    jobs: list[Job]
    #: play until this moment; None: until every job has ended
    until: float | None = None
    most_held: int = field(default=0, init=False)
    preempted: int = field(default=0, init=False)

    def scenario(self) -> Scenario:
        o = self.options
        profile = replace(builtin(o.profile), max_num_seqs=o.max_num_seqs, kv_tokens=o.kv_tokens)
        spec = ModelSpec(MODEL, {"p": 1}, o.policy, self.overheat, hold=HoldSpec(10**6, 1e6), slow_start=0.0)
        pool = PoolModel("p", profile, o.replicas, PoolFacts(max_running=o.max_num_seqs), prefix_cache=False)
        return Scenario(
            {MODEL: spec}, (pool,), signals=Signals(delay_s=0.0, hop_s=o.hop), timeouts=PATIENT, seed=self.seed
        )

    def play(self) -> None:
        self.jobs.sort(key=lambda job: job.at)
        cluster = Cluster(self.scenario(), [job.request() for job in self.jobs], records=[self._note])
        self._dispatcher = cluster.gateways[0].dispatcher
        results = cluster.play(inf if self.until is None else self.until)
        self.preempted = sum(server.counts()[0] for server in cluster.servers.values())
        for place, job in enumerate(self.jobs):
            if results.first_s[place] == results.first_s[place]:
                job.first = results.first_s[place]
            if results.ends[place] == COMPLETED:
                job.end = results.end_s[place]

    def _note(self, event: Event, answer: Sequence[Any]) -> None:
        if isinstance(event, Arrived):
            self.most_held = max(self.most_held, self._dispatcher.held)


def draw(rng: random.Random, shapes: tuple[Shape, ...]) -> Shape:
    return rng.choices(shapes, [s.share for s in shapes])[0]


def quantile(ranked: list[float], q: float) -> float:
    return ranked[min(len(ranked) - 1, int(q * len(ranked)))] if ranked else float("nan")


def waits(jobs: list[Job]) -> list[float]:
    return sorted(job.first - job.at for job in jobs if job.first is not None)


def order(name: str) -> AbstractContextManager[object]:
    """ "first come": of one tenant's requests, short and long ones take no turns, as if all were of one size."""
    return patch.object(fair, "size", lambda cost: "M") if name == "first come" else nullcontext()


def capacity(o: argparse.Namespace, shapes: tuple[Shape, ...], seconds: float = 200.0) -> float:
    """Requests a second that the engines finish when there is always more to do, in the mix in which they come."""
    rng = random.Random(0)
    jobs = [Job(0.0, shape) for shape in rng.choices(shapes, [s.share for s in shapes], k=20_000)]
    world = World(o, OverheatSpec(waiting=4.0), 0, jobs, until=seconds)
    with order("first come"):
        world.play()
    ended = sum(job.end is not None and seconds / 4 < job.end <= seconds for job in jobs)
    return ended / (seconds * 3 / 4)


# --- first part


#: who sends the long requests, and who the short ones
WHO = {"first come": ("", ""), "one tenant": ("", ""), "long ones of another tenant": ("long", "short")}
#: times to the first token
COLUMNS = ("p50", "p95", "p99", "mean", "short_p95", "long_p95", "long_p99")


def late_binding(o: argparse.Namespace) -> dict[str, Any]:
    shapes = mix(o.long_share)
    able = capacity(o, shapes)
    variants = {f"{waiting:g}": OverheatSpec(waiting=waiting) for waiting in o.thresholds} | {"straight": STRAIGHT}
    rows: dict[str, dict[str, list[dict[str, float]]]] = {who: {name: [] for name in variants} for who in WHO}
    for seed in range(1, o.seeds + 1):
        rng = random.Random(seed)
        plan = [(at, draw(rng, shapes)) for at in poisson(rng, o.load * able, o.seconds)]
        for who, (long, short) in WHO.items():
            for name, overheat in variants.items():
                jobs = [Job(at, shape, short if shape is shapes[0] else long) for at, shape in plan]
                with order(who):
                    rows[who][name].append(_row(o, overheat, seed, jobs))
    return {"capacity_per_s": able, "load": o.load, "long_share": o.long_share, "rows": rows}


def _row(o: argparse.Namespace, overheat: OverheatSpec, seed: int, jobs: list[Job]) -> dict[str, float]:
    world = World(o, overheat, seed, jobs)
    world.play()
    everybody = waits(jobs)
    return {
        "requests": len(jobs),
        "p50": quantile(everybody, 0.5),
        "p95": quantile(everybody, 0.95),
        "p99": quantile(everybody, 0.99),
        "mean": mean(everybody),
        "short_p95": quantile(waits([job for job in jobs if job.shape.prompt == SHORT.prompt]), 0.95),
        "long_p95": quantile(waits([job for job in jobs if job.shape.prompt != SHORT.prompt]), 0.95),
        "long_p99": quantile(waits([job for job in jobs if job.shape.prompt != SHORT.prompt]), 0.99),
        "held": world.most_held,
        "preempted": world.preempted,
        "unanswered": sum(job.end is None for job in jobs),
    }


# --- second part


FLOOD = ("b_p50", "b_p95", "a_p50", "a_long_p50")


def flood(o: argparse.Namespace) -> dict[str, Any]:
    """A sends twice what all replicas can do; B one request a second."""
    shapes = mix(o.long_share)
    able = capacity(o, shapes)
    rows: dict[str, list[dict[str, float]]] = {"fair": [], "first come": []}
    for seed in range(1, o.seeds + 1):
        rng = random.Random(seed)
        plan = [(at, draw(rng, shapes), "A") for at in poisson(rng, 2 * able, o.flood_seconds)]
        plan += [(at, SHORT, "B") for at in poisson(rng, 1.0, o.flood_seconds)]
        for name, results in rows.items():
            jobs = [Job(at, shape, owner if name == "fair" else "", owner=owner) for at, shape, owner in plan]
            with order(name):
                World(o, OverheatSpec(), seed, jobs).play()
            b = waits([job for job in jobs if job.owner == "B"])
            a = waits([job for job in jobs if job.owner == "A"])
            long = waits([job for job in jobs if job.owner == "A" and job.shape.prompt != SHORT.prompt])
            results.append(
                dict(
                    zip(
                        FLOOD,
                        (*(quantile(b, q) for q in (0.5, 0.95)), quantile(a, 0.5), quantile(long, 0.5)),
                        strict=True,
                    )
                )
            )
    return {"capacity_per_s": able, "rows": rows}


# --- third part

#: four that ask for all they can get: how they ask differs
GREEDY = {
    "short": (Shape(100, 30, 128), 4.0),
    "long": (Shape(4000, 400, 1024), 0.5),
    "careless": (Shape(500, 10, 4096), 2.0),
    "chatty": (Shape(100, 400, 400), 1.0),
}


def jain(shares: list[float]) -> float:
    return sum(shares) ** 2 / (len(shares) * sum(share * share for share in shares))


def greedy(o: argparse.Namespace) -> dict[str, Any]:
    """Each sends more than a quarter of the capacity in requests of its own kind, all the time."""
    rows: dict[str, list[dict[str, float]]] = {"fair": [], "first come": []}
    for seed in range(1, o.seeds + 1):
        rng = random.Random(seed)
        plan = []
        for owner, (shape, eager) in GREEDY.items():
            rate = eager * capacity(o, (shape,), 60.0)
            plan += [(at, shape, owner) for at in poisson(rng, rate, o.flood_seconds)]
        for name, results in rows.items():
            jobs = [Job(at, shape, owner if name == "fair" else "", owner=owner) for at, shape, owner in plan]
            with order(name):
                World(o, OverheatSpec(), seed, jobs, until=o.flood_seconds).play()
            tokens: defaultdict[str, float] = defaultdict(float)
            work: defaultdict[str, float] = defaultdict(float)
            for job in jobs:
                if job.end is not None:
                    tokens[job.owner] += job.shape.prompt + job.shape.answer
                    work[job.owner] += cost(job.shape.prompt, job.shape.answer)
            results.append(
                {
                    "jain_cost": jain([work[owner] for owner in GREEDY]),
                    "jain_tokens": jain([tokens[owner] for owner in GREEDY]),
                    **{owner: work[owner] / sum(work.values()) for owner in GREEDY},
                }
            )
    return {"rows": rows}


def thresholds(text: str) -> list[float]:
    return [float(word) for word in text.split(",")]


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.late_binding", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--load", type=float, default=0.9, help="share of the measured capacity")
    parser.add_argument("--long-share", type=float, default=0.1, help="share of long requests (4,000 + 400 tokens)")
    parser.add_argument("--seconds", type=float, default=600, help="of arrivals, virtual")
    parser.add_argument("--flood-seconds", type=float, default=300)
    parser.add_argument("--thresholds", type=thresholds, default="1,2,4,8,16")
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--max-num-seqs", type=int, default=8)
    parser.add_argument("--kv-tokens", type=int, default=20_000)
    parser.add_argument("--profile", default="a100-7b")
    parser.add_argument("--policy", default="queue_depth")
    parser.add_argument("--hop", type=float, default=0.001, help="seconds between gateway and engine, one way")
    parser.add_argument("--only", choices=["binding", "flood", "greedy"])
    parser.add_argument("--json", action="store_true")
    o = parser.parse_args()
    parts = {"binding": late_binding, "flood": flood, "greedy": greedy}
    found = {name: part(o) for name, part in parts.items() if o.only in (None, name)}
    if o.json:
        print(json.dumps(found, indent=1))
    else:
        show(found)
    variants = [runs for who in found.get("binding", {"rows": {}})["rows"].values() for runs in who.values()]
    lost = sum(r["unanswered"] for runs in variants for r in runs)
    return 1 if lost else 0


def show(found: dict[str, Any]) -> None:
    if (part := found.get("binding")) is not None:
        for who, variants in part["rows"].items():
            requests = sum(r["requests"] for r in variants["straight"])
            print(f"{who}: {requests} requests at {part['load']:.0%} of {part['capacity_per_s']:.2f} requests/s\n")
            straight = [r["p95"] for r in variants["straight"]]
            rows = []
            for name, runs in variants.items():
                p95 = [r["p95"] for r in runs]
                cells = [f"{median(r[key] for r in runs):.2f}" for key in COLUMNS]
                ratio = median(a / b for a, b in zip(p95, straight, strict=True))
                wins = sum(a < b for a, b in zip(p95, straight, strict=True))
                rows.append([name, *cells, f"{ratio:.2f}", f"{wins} of {len(runs)}"])
            head = [
                "overheat.waiting",
                *(f"{key} s".replace("_", " ") for key in COLUMNS),
                "p95 ÷ straight",
                "lower for",
            ]
            print(table(head, rows) + "\n")
    if (part := found.get("flood")) is not None:
        rows = [
            [name, *(f"{median(r[key] for r in runs):.2f}" for key in FLOOD)] for name, runs in part["rows"].items()
        ]
        print(table(["order", "B's TTFT p50 s", "p95 s", "A's p50 s", "A's long ones p50 s"], rows))
    if (part := found.get("greedy")) is not None:
        keys = ["jain_cost", "jain_tokens", *GREEDY]
        rows = [[name, *(f"{median(r[key] for r in runs):.2f}" for key in keys)] for name, runs in part["rows"].items()]
        print("\n" + table(["order", "Jain by cost", "by tokens", *GREEDY], rows))


if __name__ == "__main__":
    sys.exit(main())
