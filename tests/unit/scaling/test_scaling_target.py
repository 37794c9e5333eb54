"""`target`: as many replicas as hold the objective, now and at the end of a cold start."""

from __future__ import annotations

from dataclasses import replace
from math import pi, sin
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_pool import ToyPool

from kilocard.core.signals import Phase, PoolSignals, ReplicaSignals
from kilocard.scaling.burstiness import Burstiness
from kilocard.scaling.decision import Reason
from kilocard.scaling.scaler import Scaler
from kilocard.scaling.staffing import late_share, replicas_for
from kilocard.spec.model import PoolSpec, ReplicaRange
from kilocard.spec.scaling import ObjectiveSpec, ScalingSpec


def scaler(low: int = 1, high: int = 30, **scaling: Any) -> Scaler:
    spec = replace(ScalingSpec(policy="target"), **scaling)
    return Scaler(PoolSpec("p", "vllm", replicas=ReplicaRange(low, high), scaling=spec))


def pool(rate: float, replicas: int = 1, cold_s: float = 60.0, **scaling: Any) -> ToyPool:
    return ToyPool(scaler(capacity=1.0, **scaling), lambda now: rate, cold_s=cold_s).start(replicas, ready_at=0.0)


def test_as_12_a_backlog_is_worked_off_and_no_reason_to_run_away() -> None:
    """One replica with 131 s of work before it, and two replicas' steady demand: seven were started elsewhere."""
    toy = ToyPool(scaler(capacity=4.0), lambda now: 6.4, serves=4.0).start(1, ready_at=0.0)
    toy.queue = 4.0 * 131.0
    toy.run(3600)
    assert max(each.wanted for each in toy.decisions) <= 5
    assert 2 <= len(toy.replicas) <= 3
    assert toy.queue < 1
    assert toy.turns <= 1


def test_a_burst_is_answered_by_all_that_are_needed_at_once() -> None:
    toy = pool(2.0, 3).run(600)
    toy.rate = lambda now: 8.0
    toy.run(60)
    assert len(toy.replicas) >= 9
    grew = [each for each in toy.changes if each.wanted > each.have]
    assert max(each.wanted - each.have for each in grew) > 1


def test_surge_bounds_what_is_added_within_15_s() -> None:
    toy = pool(2.0, 3, surge=2).run(600)
    toy.rate = lambda now: 20.0
    had = [len(toy.run(1).replicas) for _ in range(60)]
    assert all(after - before <= 2 for before, after in zip(had, had[15:], strict=False))
    assert had[-1] > had[0] + 4


def test_loading_replicas_count() -> None:
    """What was decided is not decided again while it loads."""
    toy = pool(2.0, 3, cold_s=900.0)
    toy.scaler.restore(0.0, {"policy": {"kind": "target", "cold_starts": [900.0]}}, 0.0)
    toy.run(300)
    toy.rate = lambda now: 5.0
    toy.run(60)
    decided = len(toy.replicas)
    toy.run(400)
    assert decided <= len(toy.replicas) <= decided + 4
    assert not [each for each in toy.changes if each.wanted < each.have]


def test_a_rise_is_met_before_it_is_there() -> None:
    """With a trend, a cold start's worth of replicas is on its way in time."""
    toy = ToyPool(scaler(capacity=1.0), lambda now: 2.0 + now / 300.0, cold_s=120.0).start(4, ready_at=0.0)
    toy.run(3000)
    assert toy.late / toy.arrived < 0.01
    assert len(toy.replicas) <= 20


def test_without_a_capacity_it_is_learned_from_full_replicas() -> None:
    toy = ToyPool(scaler(), lambda now: 4.0, serves=2.0).start(1, ready_at=0.0).run(1800)
    learned = toy.decisions[-1].numbers["work_per_replica_s"]
    # a request is 1,000 tokens of a prompt and 100 of an answer, which count four times
    assert learned == pytest.approx(2.0 * 1400, rel=0.15)
    assert 3 <= len(toy.replicas) <= 4
    assert toy.queue < 1


def test_no_flapping_on_a_sinus_faster_than_its_memory() -> None:
    toy = ToyPool(scaler(capacity=1.0), lambda now: 5.0 + 2.0 * sin(2 * pi * now / 240.0)).start(8, ready_at=0.0)
    toy.run(1000)
    before = toy.turns
    toy.run(3000)
    assert toy.turns - before == 0


def test_a_slow_sinus_is_followed_once_up_and_once_down_a_period() -> None:
    toy = ToyPool(scaler(capacity=1.0), lambda now: 6.0 + 4.0 * sin(2 * pi * now / 2400.0)).start(10, ready_at=0.0)
    toy.run(2 * 2400)
    assert toy.turns <= 2 * 2
    assert toy.late / toy.arrived < 0.01


def test_the_edge_between_two_numbers_is_no_reason_to_flap() -> None:
    """The rate at which another replica is just needed, give or take a little."""
    edge = next(
        rate / 100
        for rate in range(200, 800)
        if replicas_for(rate / 100 * 1.1, 1.0, 1.0, 0.95) > replicas_for(2.0 * 1.1, 1.0, 1.0, 0.95)
    )
    toy = ToyPool(scaler(capacity=1.0), lambda now: edge * (1.01 if now % 40 < 20 else 0.99)).start(5, ready_at=0.0)
    toy.run(3600)
    assert toy.turns <= 1


def test_a_stricter_objective_wants_more() -> None:
    found = [
        len(pool(6.0, 8, slo=ObjectiveSpec(ttft, share)).run(1200).replicas)
        for ttft, share in ((20.0, 0.5), (2.0, 0.95), (1.2, 0.999))
    ]
    assert found == sorted(found)
    assert found[0] < found[-1]


def test_blind_means_still() -> None:
    toy = pool(6.0, 12).run(60)
    replicas = toy.signals()[1]
    for second in range(3000):
        decision = toy.scaler.decide(toy.now + second, None, replicas)
        assert (decision.wanted, decision.reason) == (12, Reason.BLIND)


def test_silent_replicas_are_not_removed() -> None:
    toy = pool(1.0, 6)
    for _ in range(3000):
        toy.now += 1.0
        toy.arrived += 1.0
        toy.finished += 1.0
        signals, replicas = toy.signals()
        decision = toy.scaler.decide(toy.now, signals, [replace(each, running=None) for each in replicas])
        assert decision.wanted == 6
    assert decision.reason is Reason.BLIND


def test_failing_replicas_are_replaced_but_a_crash_loop_does_not_run_away() -> None:
    toy = pool(4.0, 8).run(700)
    steady = len(toy.replicas)
    wanted = []
    for _ in range(400):
        toy.now += 1.0
        toy.arrived += 4.0
        toy.finished += 4.0
        signals, replicas = toy.signals()
        broken = [ReplicaSignals(f"p-b{number}", "p", Phase.FAILING) for number in range(20)]
        wanted.append(toy.scaler.decide(toy.now, signals, replicas + broken).wanted)
    assert max(wanted) <= steady + 20
    assert steady >= 5


def test_a_gateway_that_restarted_is_no_fall_of_demand() -> None:
    toy = pool(6.0, 10).run(900)
    had = len(toy.replicas)
    toy.source, toy.arrived, toy.finished, toy.answered, toy.first = "gateway 1", 0.0, 0.0, 0.0, [0] * len(toy.first)
    toy.run(120)
    assert len(toy.replicas) == had


@pytest.mark.parametrize("load", [0.1, 0.9, 3.7, 40.0])
def test_staffing_is_monotone(load: float) -> None:
    shares = [late_share(n, load, 0.5, 1.5) for n in range(1, 80)]
    assert shares == sorted(shares, reverse=True)
    assert late_share(replicas_for(load, 0.5, 1.5, 0.95), load, 0.5, 1.5) <= 0.05


def test_bursts_are_told_from_an_even_stream() -> None:
    even, bursts = Burstiness(), Burstiness()
    for now in range(400):
        even.look(float(now), 5.0 * now)
        bursts.look(float(now), 50.0 * (now // 100) * 10)
    assert even.ratio == pytest.approx(0.0)
    assert bursts.ratio > 100


def test_bursts_want_more_than_an_even_stream_of_the_same_mean() -> None:
    even = pool(6.0, 12).run(900)
    bursts = ToyPool(scaler(capacity=1.0), lambda now: 60.0 if now % 30 < 3 else 0.0).start(12, ready_at=0.0).run(900)
    assert len(bursts.replicas) > len(even.replicas)


@pytest.mark.parametrize("capacity", [1.0, None])
@pytest.mark.parametrize("rest", [0.0, 0.01])
def test_when_the_traffic_ends_the_pool_shrinks_to_its_least(capacity: float | None, rest: float) -> None:
    """Nobody came for longer than lengths are averaged: what a replica can do is known all the same."""
    toy = ToyPool(scaler(capacity=capacity), lambda now: 6.0 if now < 1200 else rest).start(1, ready_at=0.0)
    assert len(toy.run(1200).replicas) >= 8
    assert len(toy.run(2400).replicas) == 1
    assert toy.turns <= 1


@pytest.mark.parametrize("rate", [0.0, 0.1])
def test_replicas_that_were_never_full_and_have_nothing_to_do_go_one_by_one(rate: float) -> None:
    """Whatever one can do, the others can do as well what there is."""
    one = scaler()
    looks = [one.decide(float(now), *quiet(now * rate, 6, 1.0)) for now in range(301)]
    assert [each.wanted for each in looks if each.wanted != 6] == [5]


def test_a_replica_that_is_at_work_is_not_removed_to_learn_what_the_others_can_do() -> None:
    one = scaler()
    looks = [one.decide(float(now), *quiet(3.0 * now, 6, 6.0)) for now in range(1000)]
    assert {each.wanted for each in looks} == {6}
    assert looks[-1].reason is Reason.STEADY


def quiet(arrived: float, replicas: int, running: float) -> tuple[PoolSignals, list[ReplicaSignals]]:
    """Nothing waits, and so many run in all."""
    there = [
        ReplicaSignals(f"p-{n}", "p", Phase.READY, 1000.0, running=running / replicas, waiting=0.0, age_s=0.1)
        for n in range(replicas)
    ]
    return PoolSignals("p", sources=("g",), arrived=arrived, prompt_tokens=900 * arrived, finished=arrived), there


def test_a_gateway_that_restarts_removes_nothing() -> None:
    """Nothing waits, as always with an objective: that is no reason while what comes is not known."""
    toy = pool(6.0, 8).run(2000)
    had = len(toy.replicas)
    for life in range(20):
        toy.source, toy.arrived, toy.finished = f"gateway {life + 1}", 0.0, 0.0
        toy.run(45)
    assert len(toy.replicas) >= had


def test_a_pool_without_a_replica_that_answers_is_not_counted_to_the_end_of_time() -> None:
    """Staffing is asked each second in the gateway's own process."""
    assert replicas_for(1e12, 1.0, 1.0, 0.95) == 1e12
    assert 20_000 < replicas_for(20_000.0, 1000.0, 0.2, 0.999999, 8.0) < 21_000


@settings(max_examples=100, deadline=None)
@given(
    st.one_of(st.just(0.0), st.floats(1e-6, 90.0)),
    st.floats(1e-3, 100.0),
    st.floats(0.01, 100.0),
    st.floats(0.01, 1.0),
    st.floats(0.0, 20.0),
)
def test_staffing_is_the_fewest_and_grows_with_the_load(
    load: float, service: float, within: float, share: float, more: float
) -> None:
    found = replicas_for(load, service, within, share)
    assert late_share(found, load, service, within) <= 1.0 - share
    assert found == 1 or late_share(found - 1, load, service, within) > 1.0 - share
    assert replicas_for(load + more, service, within, share) >= found
