"""Trials on virtual time: what comes out of replicas behind one gateway."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from random import Random

import pytest

from kilocard.perf.builtin import A100_7B
from kilocard.perf.operating_point import at_rate
from kilocard.perf.profile import Profile
from kilocard.planner.trial import run_trial, trial
from kilocard.sim.cluster import Cluster
from kilocard.sim.scenario import Scenario, Signals
from kilocard.workload.arrivals import Poisson
from kilocard.workload.generate import generate
from kilocard.workload.lengths import Fixed
from kilocard.workload.mixes import Mix
from kilocard.workload.request import WorkloadRequest

REPLICA = replace(A100_7B, max_num_seqs=32)


def request(at_s: float, inputs: int = 100, outputs: int = 10) -> WorkloadRequest:
    return WorkloadRequest(at_s=at_s, input_tokens=inputs, output_tokens=outputs)


def test_a_request_alone_takes_its_steps_and_nothing_else() -> None:
    profile = Profile("steps", 0.01, 0.0, 0.0, 0.0, kv_tokens=10_000, max_num_seqs=8, max_num_batched_tokens=2048)
    found = run_trial(profile, [request(float(i)) for i in range(20)], replicas=1)
    assert found.ttft_s.mean == pytest.approx(0.01)
    assert found.tpot_s is not None and found.tpot_s.p95 == pytest.approx(0.01)
    assert found.e2e_s.mean == pytest.approx(0.1)


def test_two_replicas_share_what_comes_at_once() -> None:
    profile = Profile("slow", 1.0, 0.0, 0.0, 0.0, kv_tokens=10_000, max_num_seqs=1, max_num_batched_tokens=2048)
    pairs = [request(100.0 * (i // 2), outputs=1) for i in range(20)]
    assert run_trial(profile, pairs, replicas=1).ttft_s.p95 == pytest.approx(2.0)
    assert run_trial(profile, pairs, replicas=2).ttft_s.p95 == pytest.approx(1.0)


def test_means_agree_with_the_closed_form_below_the_knee() -> None:
    rate = 1.5
    expected = at_rate(REPLICA, rate, 128, 500)
    tried = trial(
        REPLICA, replicas=4, rate_per_s=4 * rate, inputs=Fixed(128), outputs=Fixed(500), streams=32, rng=Random(1)
    )
    assert tried.tpot_s is not None
    assert tried.tpot_s.mean == pytest.approx(expected.tpot_s, rel=0.1)
    assert tried.concurrency == pytest.approx(expected.concurrency, rel=0.15)


@pytest.mark.parametrize("ahead", [0, 1])
def test_an_engine_that_schedules_ahead_keeps_a_prompt_waiting_as_the_closed_form_says(ahead: int) -> None:
    engine = replace(REPLICA, steps_ahead=ahead)
    expected = at_rate(engine, 1.0, 128, 300)
    tried = trial(engine, replicas=4, rate_per_s=4.0, inputs=Fixed(128), outputs=Fixed(300), streams=8, rng=Random(1))
    assert tried.ttft_s.mean == pytest.approx(expected.ttft_s, rel=0.08)


def test_overload_shows_in_the_tail() -> None:
    def p95(replicas: int) -> float:
        return trial(
            REPLICA, replicas=replicas, rate_per_s=20, inputs=Fixed(128), outputs=Fixed(500), streams=32, rng=Random(1)
        ).ttft_s.p95

    assert p95(10) < 0.2 < 1 < p95(8)


def test_a_large_cluster_is_tried_with_fewer_replicas_at_the_same_rate_each() -> None:
    tried = trial(
        REPLICA, replicas=100, rate_per_s=180, inputs=Fixed(128), outputs=Fixed(500), streams=32, rng=Random(1)
    )
    assert tried.of_replicas == 100 and tried.replicas < 20
    assert tried.output_tokens_per_s == pytest.approx(1.8 * 500 * tried.replicas, rel=0.1)


def test_equal_seeds_give_equal_trials() -> None:
    def once(seed: int) -> object:
        return trial(
            REPLICA, replicas=1, rate_per_s=1, inputs=Fixed(64), outputs=Fixed(64), streams=8, rng=Random(seed)
        )

    assert once(3) == once(3) != once(4)


@pytest.mark.parametrize("ahead", [0, 1])
def test_a_trial_is_the_simulators_cluster(ahead: int) -> None:
    """What `kilocard simulate` would say of the same requests on the same replicas."""
    engine = replace(REPLICA, steps_ahead=ahead)
    requests = list(islice(generate(Poisson(5.0), Mix.of(Fixed(128), Fixed(300)), Random(1)), 300))
    cluster = Cluster(Scenario.of_one(engine, 3, signals=Signals(hop_s=0.0)), requests)
    results = cluster.play()
    inside = [place for place, each in enumerate(requests) if requests[90].at_s <= each.at_s < requests[270].at_s]
    tried = run_trial(engine, requests, replicas=3)
    assert tried.requests == len(inside)
    assert tried.e2e_s.mean == pytest.approx(sum(results.end_s[n] - requests[n].at_s for n in inside) / len(inside))


def test_who_finds_no_place_in_the_gateway_in_time_is_counted() -> None:
    slow = Profile("slow", 1.0, 0.0, 0.0, 0.0, kv_tokens=10_000, max_num_seqs=1, max_num_batched_tokens=2048)
    found = run_trial(slow, [request(0.1 * i, outputs=2) for i in range(300)], replicas=1)
    assert found.turned_away > 100


def test_a_trial_of_hardly_any_traffic_is_bounded_in_virtual_time() -> None:
    tried = trial(REPLICA, replicas=1, rate_per_s=1e-4, inputs=Fixed(64), outputs=Fixed(8), streams=1, rng=Random(1))
    assert tried.requests > 100
    assert tried.output_tokens_per_s > 4 * 8e-4, "at a rate at which they still hardly meet"


def test_requests_that_no_replica_can_hold_are_counted() -> None:
    small = replace(REPLICA, kv_tokens=1024)
    mixed = [request(float(i), inputs=100 if i % 2 else 5000) for i in range(20)]
    assert run_trial(small, mixed, replicas=1).refused == 10
