"""Pools that grow and shrink in the simulator: the production Scaler on the simulator's signals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from small_cluster import FAST, SLO, arrivals, played

from kilocard.core.signals import PoolSignals, ReplicaSignals
from kilocard.dispatch.config import PoolFacts
from kilocard.scaling.decision import Reason, ScalingDecision
from kilocard.scaling.limits import Limits
from kilocard.scaling.scaler import Scaler
from kilocard.sim.autoscaling import Decides
from kilocard.sim.cluster import Cluster
from kilocard.sim.report import report
from kilocard.sim.scenario import PoolModel, Scenario
from kilocard.spec.model import ModelSpec, PoolSpec, ReplicaRange
from kilocard.spec.scaling import ScaleStep, ScalingSpec, ScheduleSpec
from kilocard.workload.request import WorkloadRequest

QUICK = ScalingSpec(up=ScaleStep(4, 2), down=ScaleStep(1, 10), cooldown=2.0)
TARGET = ScalingSpec(policy="target", down=ScaleStep(5, 60))


def scaling(spec: ScalingSpec = QUICK, low: int = 1, high: int = 8) -> Callable[[], Scaler]:
    return partial(Scaler, PoolSpec("p", "vllm", replicas=ReplicaRange(low, high), scaling=spec))


def scenario(scaler: Callable[[], Decides] | None, replicas: int = 1, load_s: float = 5.0, **more: Any) -> Scenario:
    pool = PoolModel(
        "p", FAST, replicas, PoolFacts(max_running=FAST.max_num_seqs), load_s=load_s, scaler=scaler, grace_s=60.0
    )
    return Scenario({"m": ModelSpec("m", {"p": 1})}, (pool,), **more)


def waves(seed: int = 1) -> list[WorkloadRequest]:
    """20 s of much, 60 s of little, three times over."""
    found: list[WorkloadRequest] = []
    for wave in range(3):
        much = [replace(each, at_s=each.at_s + 80.0 * wave) for each in arrivals(60.0, 1200, seed=seed + wave)]
        little = [replace(each, at_s=each.at_s + 80.0 * wave + 20.0) for each in arrivals(1.0, 60, seed=seed)]
        found += much + little
    return sorted(found, key=lambda each: each.at_s)


def changes(cluster: Cluster) -> list[int]:
    return [event.wanted - event.have for event in cluster.autoscaling.events]


def test_as_04_no_stream_is_cut_by_a_scale_down() -> None:
    cluster = played(scenario(scaling()), waves())
    down = [change for change in changes(cluster) if change < 0]
    assert len(down) >= 4
    counts = cluster.results.counts()
    assert counts["completed"] == len(cluster.requests)


def test_a_new_replica_serves_only_when_it_has_loaded_and_its_gpu_is_paid_from_the_start() -> None:
    cluster = played(scenario(scaling(), load_s=30.0), arrivals(60.0, 1500))
    added = cluster.autoscaling.events[0]
    assert added.reason == Reason.ABOVE
    moments = {moment.at_s: moment.up for moment in cluster.timeline.moments}
    assert moments[added.at_s + 29.0] == 1
    assert moments[added.at_s + 31.0] == 2
    document = report(cluster, SLO)
    assert document["gpu_hours"] > sum(moments.values()) / 3600 + 25.0 / 3600


def test_what_is_no_longer_wanted_is_not_waited_for() -> None:
    """A replica that still loads goes at once; no gateway ever heard of it."""

    class Hasty:
        def decide(
            self, now: float, signals: PoolSignals | None, replicas: Sequence[ReplicaSignals], limits: Limits
        ) -> ScalingDecision:
            wanted = 3 if now < 10.0 else 1
            return ScalingDecision(now, "p", len(replicas), wanted, Reason.DEMAND, "")

    cluster = played(scenario(Hasty, load_s=100.0), arrivals(2.0, 300))
    assert changes(cluster) == [2, -2]
    assert max(moment.up for moment in cluster.timeline.moments) == 1
    assert len(cluster.results.left) == 2
    assert cluster.gateways[0].dispatcher.stats.late_events == 0


def test_a_stream_that_outlives_the_grace_is_cut_and_counted() -> None:
    class Impatient:
        def decide(
            self, now: float, signals: PoolSignals | None, replicas: Sequence[ReplicaSignals], limits: Limits
        ) -> ScalingDecision:
            have = sum(each.phase != "draining" for each in replicas)
            return ScalingDecision(now, "p", have, 1, Reason.AT_MOST, "")

    long = [WorkloadRequest(at_s=number * 0.01, input_tokens=50, output_tokens=4000) for number in range(8)]
    base = scenario(Impatient, replicas=2)
    base = replace(base, pools=(replace(base.pools[0], grace_s=5.0),))
    cluster = played(base, long)
    assert cluster.results.counts()["failed"] == 4
    assert len(cluster.results.left) == 1


def test_as_12_ten_workers_and_a_queue_settle_at_two_or_three() -> None:
    """Two replicas' worth of steady demand reach one replica, which soon has a long queue."""
    one = 22.0  # requests a second that one replica of FAST takes of this mix, about
    cluster = played(scenario(scaling(TARGET)), arrivals(1.6 * one, 9000))
    there = [moment.up for moment in cluster.timeline.moments]
    assert max(there) <= 5
    assert there[-10] in (2, 3)


def test_to_zero_and_back_with_the_request_held_meanwhile() -> None:
    spec = replace(QUICK, idle=20.0)
    requests = [WorkloadRequest(at_s=at, input_tokens=100, output_tokens=20) for at in (0.0, 100.0, 101.0, 200.0)]
    cluster = played(scenario(scaling(spec, low=0), load_s=15.0), requests)
    assert [(event.wanted, event.reason) for event in cluster.autoscaling.events] == [
        (0, "idle"), (1, "held"), (0, "idle"), (1, "held"),
    ]  # fmt: skip
    assert cluster.results.counts()["completed"] == 4
    waited = cluster.results.first_s[1] - 100.0
    assert 15.0 < waited < 17.0


def test_schedules_go_by_the_simulations_own_clock() -> None:
    """It begins on Monday at midnight."""
    spec = replace(QUICK, schedules={"early": ScheduleSpec("early", (0,), 1, 3, "Asia/Shanghai", min=4)})
    cluster = played(scenario(scaling(spec), load_s=1.0), arrivals(1.0, 300))
    up = {moment.at_s: moment.up for moment in cluster.timeline.moments}
    assert (up[58.0], up[63.0], up[179.0]) == (1, 4, 4)
    assert up[200.0] < 4


def test_two_gateways_are_added_up() -> None:
    document = report(played(scenario(scaling(TARGET), gateways=2), arrivals(45.0, 4000)), SLO)
    assert document["scaling"]["events"]
    assert document["completed"] == 4000


def test_the_same_seed_gives_the_same_decisions() -> None:
    runs = [report(played(scenario(scaling(TARGET)), waves()), SLO) for _ in range(2)]
    assert runs[0] == runs[1]


@pytest.mark.parametrize("scaler", [None])
def test_without_a_scaler_nothing_changes(scaler: None) -> None:
    document = report(played(scenario(scaler), arrivals(5.0, 100)), SLO)
    assert document["scaling"] is None
