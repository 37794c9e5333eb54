"""A small cluster to simulate, for the tests of this folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

from kilocard.dispatch.config import PoolFacts
from kilocard.perf.builtin import SMALL_FAST
from kilocard.perf.profile import Profile
from kilocard.sim.cluster import Cluster
from kilocard.sim.faults import read_fault
from kilocard.sim.report import Slo, report
from kilocard.sim.scenario import PoolModel, Scenario, Signals
from kilocard.spec.model import HedgeSpec, ModelSpec, Timeouts
from kilocard.workload.arrivals import Poisson
from kilocard.workload.generate import generate
from kilocard.workload.mixes import read_mix
from kilocard.workload.request import WorkloadRequest

SLO = Slo(ttft_s=1.0, tpot_s=0.05)
FAST = replace(SMALL_FAST, max_num_seqs=16)


def arrivals(
    rate: float, count: int, mix: str = "mean=300,p99=1500/mean=60,p99=400", seed: int = 1
) -> list[WorkloadRequest]:
    return list(generate(Poisson(rate), read_mix(mix), Random(seed), requests=count))  # a test


def scenario(
    replicas: int = 4,
    policy: str = "queue_depth",
    *,
    profile: Profile = FAST,
    faults: Sequence[str] = (),
    load_s: float = 5.0,
    timeouts: Timeouts = Timeouts(),  # noqa: B008  # frozen, so shared safely
    hedge: HedgeSpec | None = None,
    signals: Signals = Signals(),  # noqa: B008  # frozen, so shared safely
    **more: Any,
) -> Scenario:
    pool = PoolModel("p", profile, replicas, PoolFacts(max_running=profile.max_num_seqs), load_s=load_s)
    return Scenario(
        {"m": ModelSpec("m", {"p": 1}, policy, hedge=hedge)},
        (pool,),
        faults=tuple(read_fault(text) for text in faults),
        timeouts=timeouts,
        signals=signals,
        **more,
    )


def played(
    scenario: Scenario, requests: Sequence[WorkloadRequest], until_s: float = float("inf"), **more: Any
) -> Cluster:
    cluster = Cluster(scenario, requests, **more)
    cluster.play(until_s)
    return cluster


def numbers(scenario: Scenario, requests: Sequence[WorkloadRequest]) -> dict[str, Any]:
    return report(played(scenario, requests), SLO)
