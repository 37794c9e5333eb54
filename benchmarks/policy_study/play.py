"""One case → its numbers, by the parts that `kilocard simulate` is made of."""

from __future__ import annotations

import gc
from collections import UserDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.policy_study.cases import BLOCK_TOKENS, COUNTED_S, REPLICAS, SLOWER, TRACES, WARM_S, Case
from benchmarks.policy_study.workload import superposed
from kilocard.cli.simulate_input import Sizes, pool_models
from kilocard.cli.wiring import read_cluster
from kilocard.core.errors import UsageError
from kilocard.core.latency import tpot_s
from kilocard.core.statistics import mean
from kilocard.sim.cluster import Cluster
from kilocard.sim.collector import COMPLETED, Collector
from kilocard.sim.faults import Slow
from kilocard.sim.report import arrivals_s, spread
from kilocard.sim.saturation import saturation
from kilocard.sim.scenario import PoolModel, Scenario, Signals
from kilocard.spec.model import HoldSpec, ModelSpec, OverheatSpec, Timeouts
from kilocard.workload.read import read_trace
from kilocard.workload.request import WorkloadRequest
from kilocard.workload.reshape import spread as spread_ticks

MODEL = "chat"
CLUSTER = Path(__file__).with_name("cluster.yaml")
#: no queue is so long, no cache so full: requests go to the engines at once
STRAIGHT = OverheatSpec(waiting=1e9, kv_usage=2.0)
#: nobody is turned away or given up while capacity is measured
PATIENT = HoldSpec(10**7, 1e9)
FOREVER = replace(Timeouts(), total=1e9, first_token=1e9, idle=1e9)
#: capacity is measured with arrivals of so many seconds, at a rate of which less than this share is done
PRESSED_S, PRESSED = 40.0, 0.65
#: requests/s and replica to begin with; doubled until it is too much
GENTLE = 1.0
#: the share of the requests that have their first token when measuring ends: all replicas are busy until then
STARTED = 0.99

Trace = Sequence[WorkloadRequest]


class Traces(UserDict[str, Trace]):
    """The public traces in a folder, each read when it is asked for: in order of arrival, coarse clocks spread out."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def __missing__(self, name: str) -> Trace:
        path = self._folder / TRACES[name]
        try:
            with path.open(encoding="utf-8") as lines:
                found = self.data[name] = spread_ticks(read_trace(lines).requests, Random(name))
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}; docs/workloads.md says where it is from") from None
        return found


def read_pools() -> dict[str, PoolModel]:
    pools = pool_models(read_cluster(CLUSTER), Sizes(), None)[0]
    return {pool.name: replace(pool, profile=replace(pool.profile, block_size=BLOCK_TOKENS)) for pool in pools}


@dataclass
class Study:
    """`capacities`: requests/s of one replica, by pool and trace; filled as they are asked for."""

    traces: Mapping[str, Trace]
    pools: Mapping[str, PoolModel]
    capacities: dict[str, float] = field(default_factory=dict)
    #: of the usual lengths of the runs
    shorter: float = 1.0
    replicas: int = REPLICAS
    _made: tuple[object, list[WorkloadRequest]] = (None, [])

    def capacity(self, pool: str, trace: str) -> float:
        """Requests/s of one replica: what a cluster does that gets much more than that, with queue_depth."""
        name = f"{pool}/{trace}"
        known = self.capacities.get(name)
        if known is None:
            rate, share = GENTLE, 1.0
            while share > PRESSED:
                known, share = self._pressed(pool, trace, rate)
                rate *= 2.0
            assert known is not None
            self.capacities[name] = known
        return known

    def _pressed(self, pool: str, trace: str, rate: float) -> tuple[float, float]:
        """Requests/s of one replica, and their share of those that came.

        In tokens a second, prompts and answers alike, over those of a usual request: the gateway serves short ones
        first while many wait, and a count of requests would be too high."""
        seconds = PRESSED_S * self.shorter
        work = superposed(self.traces[trace], rate * self.replicas, seconds, Random(f"capacity {trace}"))
        model = ModelSpec(MODEL, {pool: 1}, "queue_depth", hold=PATIENT)
        scenario = Scenario(
            {MODEL: model}, (replace(self.pools[pool], replicas=self.replicas),), timeouts=FOREVER, sample_s=3600.0
        )
        results = played(scenario, work).results
        started = sorted(first for first in results.first_s if first == first)
        end = started[int(STARTED * (len(started) - 1))]
        done = asked = 0.0
        for place, request in enumerate(work):
            if results.ends[place] != COMPLETED:
                continue
            first, last = results.first_s[place], results.end_s[place]
            tokens = request.input_tokens + request.output_tokens
            asked += tokens
            if first < end:
                done += tokens if last <= end else tokens * (end - first) / (last - first)
        able = done / asked * len(work) / end
        return able / self.replicas, able * seconds / len(work)

    def full_load(self, case: Case) -> float:
        """Requests/s of the case's cluster at 100 %."""
        each = self.replicas // len(case.pools)
        return sum(each * self.capacity(pool, case.trace) for pool in case.pools)

    def work(self, case: Case) -> tuple[list[WorkloadRequest], float, float]:
        """What arrives; from when on it counts, and until when it arrives. The same for all policies."""
        full = self.full_load(case)
        warm, counted = (self.shorter * of[case.trace] for of in (WARM_S, COUNTED_S))
        which = (case.trace, case.seed, full * case.load)
        if self._made[0] != which:
            rng = Random(f"{case.trace} {case.seed}")
            self._made = (which, superposed(self.traces[case.trace], full * case.load / 100, warm + counted, rng))
        return self._made[1], warm, warm + counted

    def scenario(self, case: Case) -> Scenario:
        each = self.replicas // len(case.pools)
        pools = tuple(replace(self.pools[name], replicas=each) for name in case.pools)
        weights = {pool.name: 1 for pool in pools}
        if case.weights == "speed":
            weights = {pool.name: round(1000 * self.capacity(pool.name, case.trace)) for pool in pools}
        model = ModelSpec(MODEL, weights, case.policy)
        if not case.hold:
            model = replace(model, overheat=STRAIGHT)
        return Scenario(
            {MODEL: model},
            pools,
            gateways=case.gateways,
            signals=Signals(scrape_s=case.scrape_s),
            faults=tuple(Slow(f"{case.pools[0]}-{number}", factor=SLOWER) for number in range(case.stragglers)),
            seed=case.seed,
            sample_s=3600.0,
        )

    def run(self, case: Case) -> dict[str, Any]:
        work, warm, end = self.work(case)
        cluster = played(self.scenario(case), work)
        return numbers(cluster, warm, end)


def played(scenario: Scenario, work: list[WorkloadRequest]) -> Cluster:
    cluster = Cluster(scenario, work)
    gc.disable()  # as kilocard simulate does
    try:
        cluster.play()
    finally:
        gc.enable()
    return cluster


def numbers(cluster: Cluster, warm: float, end: float) -> dict[str, Any]:
    """Of the requests that came after the warm-up, seconds. TTFT of those that were turned away is not there, but
    their share is."""
    results = cluster.results
    counted = [place for place, at in enumerate(results.arrived_s) if at >= warm]
    ok = [place for place in counted if results.ends[place] == COMPLETED]
    ttft = sorted(results.first_s[place] - results.arrived_s[place] for place in ok)
    tpot = sorted(_tpots(results, ok))
    servers = list(cluster.servers.values())
    queries = sum(server.counts()[1] for server in servers)
    window = max(end, arrivals_s(results))
    first, each = spread(ttft), spread(tpot)
    assert first is not None and each is not None
    return {
        "requests": len(counted),
        "completed_share": round(len(ok) / len(counted), 5),
        "state": saturation(results, window).word,
        "ttft_p50_s": round(first["p50"], 4),
        "ttft_p95_s": round(first["p95"], 4),
        "ttft_p99_s": round(first["p99"], 4),
        "ttft_mean_s": round(first["mean"], 4),
        "tpot_mean_s": round(each["mean"], 5),
        "tpot_p95_s": round(each["p95"], 5),
        "e2e_mean_s": round(mean([results.end_s[place] - results.arrived_s[place] for place in ok]), 4),
        "hit_share": round(sum(server.counts()[2] for server in servers) / queries, 4) if queries else 0.0,
        "preemptions": sum(server.counts()[0] for server in servers),
    }


def _tpots(results: Collector, places: list[int]) -> list[float]:
    found = []
    for place in places:
        at = results.arrived_s[place]
        each = tpot_s(results.first_s[place] - at, results.end_s[place] - at, results.requests[place].output_tokens)
        if each is not None:
            found.append(each)
    return found
