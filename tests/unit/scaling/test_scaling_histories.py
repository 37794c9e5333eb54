"""Whole histories of signals: the same one gives the same decisions, more load never fewer replicas."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kilocard.core.signals import BUCKETS, Phase, PoolSignals, ReplicaSignals
from kilocard.scaling.decision import ScalingDecision
from kilocard.scaling.scaler import Scaler
from kilocard.spec.model import PoolSpec, ReplicaRange
from kilocard.spec.scaling import ScaleStep, ScalingSpec

POLICIES = st.sampled_from(["threshold", "target"])
STEP_S = 5.0


def scaler(policy: str, **scaling: Any) -> Scaler:
    spec = replace(ScalingSpec(policy=policy, up=ScaleStep(20, 10), down=ScaleStep(5, 30)), **scaling)
    return Scaler(PoolSpec("p", "vllm", replicas=ReplicaRange(1, 50), scaling=spec))


def played(one: Scaler, rates: Sequence[float], replicas: int, waiting: float = 0.0) -> Iterator[ScalingDecision]:
    """Nobody does what is decided: every look is at `replicas` that serve. Each rate lasts 30 s."""
    now = arrived = 0.0
    there = [
        ReplicaSignals(f"p-{n}", "p", Phase.READY, 1000.0, running=1.0, waiting=waiting, age_s=0.1)
        for n in range(replicas)
    ]
    for rate in rates:
        for _ in range(6):
            now += STEP_S
            arrived += STEP_S * rate
            signals = PoolSignals(
                "p", sources=("g",), arrived=arrived, prompt_tokens=900 * arrived, finished=arrived,
                output_tokens=90 * arrived,
            )  # fmt: skip
            yield one.decide(now, signals, there)


#: anything that a gateway may say, in any order
WILD = st.builds(
    PoolSignals,
    st.just("p"),
    sources=st.sampled_from([("a",), ("b",), ("a", "b"), ()]),
    arrived=st.sampled_from([0.0, 1.0, 50.0, 1e9]),
    prompt_tokens=st.sampled_from([0.0, 10.0, 1e12]),
    finished=st.sampled_from([0.0, 1.0, 1e6]),
    output_tokens=st.sampled_from([0.0, 1.0, 1e9]),
    refused=st.sampled_from([0.0, 3.0]),
    hold=st.sampled_from([(0,) * BUCKETS, (*(0,) * (BUCKETS - 1), 5)]),
    first_token=st.sampled_from([(0,) * BUCKETS, (7,) * BUCKETS]),
    held=st.sampled_from([0.0, 1.0, 1e6]),
    held_oldest_s=st.sampled_from([0.0, 1e5]),
    age_s=st.sampled_from([0.0, 0.2, 2.0, 50.0]),
)
REPLICA = st.builds(
    ReplicaSignals,
    st.just("p-0"),
    st.just("p"),
    st.sampled_from(Phase),
    since_s=st.sampled_from([0.0, 30.0, 1e6]),
    running=st.sampled_from([None, 0.0, 5.0]),
    waiting=st.sampled_from([None, 0.0, 30.0, 1e6]),
    kv_usage=st.sampled_from([None, 0.0, 1.0]),
    age_s=st.sampled_from([None, 0.1, 60.0]),
)
LOOKS = st.lists(
    st.tuples(st.sampled_from([0.0, 0.2, 1.0, 5.0, 100.0]), st.none() | WILD, st.lists(REPLICA, max_size=5)),
    max_size=50,
)
SIGNAL = st.sampled_from(["waiting", "in_flight", "kv_usage", "queue_time", "ttft"])


@settings(max_examples=12, deadline=None)
@given(POLICIES, SIGNAL, LOOKS, st.none() | st.floats(1e-6, 1e6))
def test_the_same_history_gives_the_same_decisions_and_each_says_why(
    policy: str, signal: str, looks: list[Any], capacity: float | None
) -> None:
    def decisions() -> list[dict[str, Any]]:
        one, now, found = scaler(policy, signal=signal, capacity=capacity), 100.0, []
        for pause, signals, replicas in looks:
            now += pause
            decision = one.decide(now, signals, [replace(each, id=f"p-{n}") for n, each in enumerate(replicas)])
            assert 1 <= decision.wanted <= 50
            assert decision.sentence
            assert decision.numbers["least"] == 1
            if signals is None:
                assert decision.wanted >= decision.have
            found.append(decision.to_mapping())
        return found

    first = decisions()
    assert first == decisions()
    json.dumps(first)


#: requests a second
RATES = st.just(0.0) | st.floats(0.01, 40)


@settings(max_examples=15, deadline=None)
@given(RATES, RATES, st.integers(1, 40))
def test_more_load_never_asks_for_fewer(rate: float, more: float, replicas: int) -> None:
    """`target` that sees so many a second more all the time."""

    def wanted(rate: float) -> list[int]:
        # without pauses, since nobody does what is decided
        one = scaler("target", capacity=2.0, surge=1000, cooldown=0.0)
        return [each.wanted for each in played(one, [rate] * 8, replicas)]

    assert all(b >= a for a, b in zip(wanted(rate), wanted(rate + more), strict=True))


@settings(max_examples=15, deadline=None)
@given(POLICIES, RATES, st.integers(1, 12), st.floats(0, 60))
def test_under_constant_load_it_moves_one_way(policy: str, rate: float, replicas: int, waiting: float) -> None:
    """Whatever the load is: it does not ask for more now and for fewer then."""
    moves = {
        each.wanted > each.have
        for each in played(scaler(policy, capacity=2.0), [rate] * 20, replicas, waiting)
        if each.wanted != each.have
    }
    assert len(moves) <= 1
