"""`threshold` on times: the p95 of the last minute, by the gateway's own histograms."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kilocard.core.signals import EMPTY, Histogram, Phase, PoolSignals, ReplicaSignals, bucket
from kilocard.scaling.decision import Reason, ScalingDecision
from kilocard.scaling.scaler import Scaler
from kilocard.spec.model import PoolSpec, ReplicaRange
from kilocard.spec.scaling import ScaleStep, ScalingSpec

READY = [ReplicaSignals(f"p-{number}", "p", Phase.READY, running=1.0, waiting=0.0, age_s=0.5) for number in range(3)]
COMING = [ReplicaSignals("p-9", "p", Phase.LOADING)]


def scaler(signal: str) -> Scaler:
    spec = ScalingSpec(signal=signal, up=ScaleStep(2.0, 30.0), down=ScaleStep(0.5, 300.0))
    return Scaler(PoolSpec("p", "vllm", replicas=ReplicaRange(1, 8), scaling=spec))


def counts(seconds: float, count: int) -> Histogram:
    found = list(EMPTY)
    found[bucket(seconds)] = count
    return tuple(found)


def run(
    one: Scaler, signal: str, seconds: float, looks: range, share: float = 1.0, coming: bool = False
) -> list[ScalingDecision]:
    """Ten requests a second, `share` of which took so many seconds and the others none worth counting."""
    found = []
    for now in looks:
        slow, quick = counts(seconds, round(10 * now * share)), counts(0.01, round(10 * now * (1 - share)))
        both = tuple(map(sum, zip(slow, quick, strict=True)))
        told = PoolSignals("p", sources=("g",), arrived=10.0 * now)
        told = replace(told, first_token=both) if signal == "ttft" else replace(told, hold=slow)
        found.append(one.decide(float(now), told, READY + COMING if coming else READY))
    return found


@pytest.mark.parametrize("signal", ["ttft", "queue_time"])
def test_one_more_when_the_p95_is_above_for_30_s(signal: str) -> None:
    decisions = run(scaler(signal), signal, 2.5, range(121))
    first = next(each for each in decisions if each.wanted > each.have)
    # the first minute has to be seen, but for a reading's breadth
    assert first.at == pytest.approx(60 + 30, abs=1)
    assert first.reason is Reason.ABOVE
    assert first.sentence.startswith("3 s ")


@pytest.mark.parametrize("signal", ["ttft", "queue_time"])
def test_a_few_slow_ones_are_no_reason(signal: str) -> None:
    assert {each.wanted for each in run(scaler(signal), signal, 9.0, range(200), share=0.04)} == {3}
    assert max(each.wanted for each in run(scaler(signal), signal, 9.0, range(200), share=0.1)) == 4


def test_one_fewer_when_all_are_quick_for_5_minutes() -> None:
    decisions = run(scaler("ttft"), "ttft", 0.3, range(400))
    first = next(each for each in decisions if each.wanted != each.have)
    assert (first.wanted, first.reason) == (2, Reason.BELOW)
    assert first.at == pytest.approx(60 + 300, abs=1)


def test_nothing_is_added_while_a_replica_is_on_its_way() -> None:
    decisions = run(scaler("ttft"), "ttft", 9.0, range(300), coming=True)
    assert {each.wanted for each in decisions} == {4}
    assert decisions[-1].sentence.endswith("a replica is on its way that may change it")


def test_the_oldest_that_still_waits_counts_at_once() -> None:
    one = scaler("queue_time")
    wanted = [
        one.decide(float(now), PoolSignals("p", held=1.0, held_oldest_s=float(now)), READY).wanted for now in range(40)
    ]
    assert wanted.index(4) == 3 + 30
