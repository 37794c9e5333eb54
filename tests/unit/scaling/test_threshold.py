"""R50: average waiting above 20 for 30 s adds one, at most 5 for 5 minutes removes one."""

from __future__ import annotations

import pytest

from kilocard.core.signals import Phase, PoolSignals, ReplicaSignals
from kilocard.scaling.decision import Reason, ScalingDecision
from kilocard.scaling.scaler import Scaler
from kilocard.spec.model import PoolSpec, ReplicaRange
from kilocard.spec.scaling import ScalingSpec


def scaler(low: int = 1, high: int = 8) -> Scaler:
    return Scaler(PoolSpec("p", "vllm", replicas=ReplicaRange(low, high), scaling=ScalingSpec()))


def ready(*waiting: float | None, age_s: float = 0.5) -> list[ReplicaSignals]:
    return [
        ReplicaSignals(f"p-{number}", "p", Phase.READY, running=1.0, waiting=each, age_s=age_s)
        for number, each in enumerate(waiting)
    ]


def run(scaler: Scaler, seconds: range, replicas: list[ReplicaSignals], held: float = 0.0) -> list[ScalingDecision]:
    signals = PoolSignals("p", held=held)
    return [scaler.decide(float(now), signals, replicas) for now in seconds]


def test_one_more_after_30_s_above_20_and_not_a_second_sooner() -> None:
    decisions = run(scaler(), range(31), ready(25.0, 18.0))
    assert [each.wanted for each in decisions] == [2] * 30 + [3]
    assert decisions[29].reason is Reason.WAITING
    assert decisions[30].reason is Reason.ABOVE
    assert decisions[30].sentence == "21.5 requests wait per replica, more than 20 for 30 of 30 s"


def test_exactly_20_is_not_above_and_a_break_begins_anew() -> None:
    one = scaler()
    assert {each.wanted for each in run(one, range(60), ready(20.0))} == {1}
    run(one, range(60, 85), ready(21.0))
    run(one, range(85, 86), ready(20.0))
    assert {each.wanted for each in run(one, range(86, 116), ready(21.0))} == {1}
    assert run(one, range(116, 117), ready(21.0))[0].wanted == 2


def test_one_fewer_after_5_minutes_at_5_or_less() -> None:
    decisions = run(scaler(), range(301), ready(5.0, 5.0, 5.0))
    assert [each.wanted for each in decisions] == [3] * 300 + [2]
    assert decisions[300].reason is Reason.BELOW


def test_what_the_gateway_holds_waits_too() -> None:
    assert run(scaler(), range(31), ready(4.0, 4.0), held=33.0)[-1].wanted == 3


def test_a_replica_that_loads_counts_so_that_one_queue_does_not_add_two() -> None:
    coming = [ReplicaSignals("p-9", "p", Phase.LOADING)]
    assert {each.wanted for each in run(scaler(), range(60), ready(30.0) + coming)} == {2}


@pytest.mark.parametrize(
    "replicas", [ready(0.0, None), ready(0.0, 0.0, age_s=4.0)], ids=["a gauge is missing", "gauges are old"]
)
def test_missing_and_stale_gauges_never_scale_down(replicas: list[ReplicaSignals]) -> None:
    decisions = run(scaler(), range(1000), replicas)
    assert {each.wanted for each in decisions} == {2}
    assert decisions[-1].reason is Reason.BLIND


def test_time_in_which_a_replica_was_silent_is_no_time_below() -> None:
    one = scaler(high=20)
    run(one, range(290), ready(*[0.0] * 9, None))
    assert {each.wanted for each in run(one, range(290, 590), ready(*[0.0] * 10))} == {10}
    assert run(one, range(590, 591), ready(*[0.0] * 10))[0].wanted == 9


def test_of_a_big_pool_a_few_may_be_silent_and_count_as_full() -> None:
    one = scaler(high=200)
    assert run(one, range(301), ready(*[0.0] * 99, None))[-1].wanted == 99
    one = scaler(high=200)
    assert run(one, range(301), ready(*[4.9] * 99, None))[-1].wanted == 100


def test_without_a_gateways_word_nothing_is_removed() -> None:
    one = scaler()
    assert {one.decide(float(now), None, ready(0.0, 0.0)).wanted for now in range(1000)} == {2}


def test_never_above_the_maximum_and_says_so() -> None:
    decision = run(scaler(high=2), range(31), ready(25.0, 25.0))[-1]
    assert (decision.wanted, decision.reason) == (2, Reason.LIMITED)
    assert decision.sentence.startswith("at most 2; ")
