"""The Scaler around its policy: bounds, budget, schedules, pauses, zero, restart."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kilocard.core.signals import Phase, PoolSignals, ReplicaSignals
from kilocard.scaling.decision import Reason
from kilocard.scaling.journal import Journal
from kilocard.scaling.limits import Limits, LocalTime
from kilocard.scaling.scaler import Scaler
from kilocard.spec.model import GpuSpec, PoolSpec, ReplicaRange
from kilocard.spec.scaling import ScalingSpec, ScheduleSpec

BUSY, IDLE = 50.0, 0.0


def scaler(low: int = 1, high: int = 8, **scaling: Any) -> Scaler:
    spec = replace(ScalingSpec(), **scaling)
    return Scaler(PoolSpec("p", "vllm", replicas=ReplicaRange(low, high), scaling=spec))


def ready(count: int, waiting: float = IDLE, phase: Phase = Phase.READY) -> list[ReplicaSignals]:
    return [
        ReplicaSignals(f"p-{number}", "p", phase, running=0.0, waiting=waiting, age_s=0.5) for number in range(count)
    ]


def told(arrived: float = 0.0, **signals: Any) -> PoolSignals:
    return PoolSignals("p", sources=("g",), arrived=arrived, **signals)


# --- bounds


def test_below_the_minimum_replicas_are_added_at_once() -> None:
    decision = scaler(low=3).decide(0.0, told(), ready(1))
    assert (decision.wanted, decision.reason) == (3, Reason.AT_LEAST)


def test_above_the_maximum_they_go_even_without_signals() -> None:
    decision = scaler(high=2).decide(0.0, None, ready(4))
    assert (decision.wanted, decision.reason) == (2, Reason.AT_MOST)


def test_a_quota_is_stronger_than_the_minimum() -> None:
    decision = scaler(low=4).decide(0.0, told(), ready(1), Limits(replicas=2))
    assert (decision.wanted, decision.numbers["most"]) == (2, 2)


def test_the_budget_counts_gpus() -> None:
    spec = replace(ScalingSpec(), gpus=7)
    one = Scaler(PoolSpec("p", "vllm", replicas=ReplicaRange(1, 8), scaling=spec, gpus=GpuSpec(tensor=2)))
    for now in range(120):
        decision = one.decide(float(now), told(held=500), ready(3))
    assert (decision.wanted, decision.reason, decision.numbers["most"]) == (3, Reason.LIMITED, 3)


def test_a_pool_without_scaling_is_only_kept_within_its_bounds() -> None:
    one = Scaler(PoolSpec("p", "vllm", replicas=ReplicaRange(1, 4)))
    assert {one.decide(float(now), told(held=1000), ready(2, BUSY)).wanted for now in range(100)} == {2}


# --- schedules

WORK = {"work": ScheduleSpec("work", (0, 1, 2, 3, 4), 480, 1200, "Europe/Berlin", min=4)}


@pytest.mark.parametrize(
    ("time", "wanted"),
    [
        (LocalTime(0, 479), 1),
        (LocalTime(0, 480), 4),
        (LocalTime(4, 1199), 4),
        (LocalTime(4, 1200), 1),
        (LocalTime(5, 600), 1),
    ],
)
def test_a_schedule_raises_the_minimum(time: LocalTime, wanted: int) -> None:
    one = scaler(schedules=WORK)
    assert one.zones == {"Europe/Berlin"}
    decision = one.decide(0.0, told(), ready(1), Limits(local={"Europe/Berlin": time}))
    assert decision.wanted == wanted
    assert decision.numbers["schedules"] == ("work" if wanted == 4 else None)


def test_a_schedule_that_runs_past_midnight_belongs_to_the_day_on_which_it_begins() -> None:
    night = {"night": ScheduleSpec("night", (4,), 1320, 360, max=2)}
    one = scaler(schedules=night)
    wanted = [
        one.decide(float(now), told(), ready(3), Limits(local={"UTC": time})).wanted
        for now, time in enumerate([LocalTime(4, 1319), LocalTime(4, 1320), LocalTime(5, 359), LocalTime(5, 360)])
    ]
    assert wanted == [3, 2, 2, 3]
    assert one.decide(9.0, told(), ready(3), Limits(local={"UTC": LocalTime(4, 100)})).wanted == 3


# --- pauses


def test_after_growing_nothing_is_removed_for_the_cooldown() -> None:
    one = scaler(cooldown=600.0)
    for now in range(31):
        one.decide(float(now), told(), ready(1, BUSY))
    decisions = [one.decide(float(now), told(), ready(2)) for now in range(31, 700)]
    assert [each.wanted for each in decisions].index(1) == 600 - 1
    assert {each.reason for each in decisions} >= {Reason.COOLING, Reason.BELOW}


def test_a_pause_does_not_keep_a_pool_below_its_minimum() -> None:
    one = scaler(low=1, high=4, cooldown=600.0, schedules={"day": ScheduleSpec("day", start=60, min=3)})
    for now in range(301):
        one.decide(float(now), told(), ready(3), Limits(local={"UTC": LocalTime(0, 0)}))
    assert one.decide(302.0, told(), ready(2), Limits(local={"UTC": LocalTime(0, 60)})).wanted == 3


def test_a_gap_in_looking_is_no_time_in_which_a_condition_held() -> None:
    one = scaler()
    one.decide(0.0, told(), ready(1, BUSY))
    assert one.decide(60.0, told(), ready(1, BUSY)).wanted == 1


# --- waiting for GPUs


def test_who_waits_for_a_gpu_is_told_apart_and_never_thrown_away_for_being_late() -> None:
    one = scaler()
    replicas = [*ready(1, BUSY), ReplicaSignals("p-9", "p", Phase.PENDING, since_s=0.0)]
    decisions = [
        one.decide(float(now), told(), [replicas[0], replace(replicas[1], since_s=float(now))], Limits(replicas=2))
        for now in range(0, 7200, 5)
    ]
    assert {each.wanted for each in decisions} == {2}
    assert decisions[-1].numbers["pending"] == 1
    idle = one.decide(7200.0, told(), [ready(1, 10.0)[0], replicas[1]])
    assert idle.reason is Reason.NO_GPU
    assert idle.sentence.startswith("1 of 2 replicas wait for a GPU")


# --- zero


def test_as_11_a_short_request_between_two_looks_keeps_the_pool() -> None:
    """300 ms long, asked for every 8 minutes, and never seen by a gauge: the counter tells."""
    one = scaler(low=0, idle=600.0)
    wanted = []
    for now in range(0, 7200, 15):
        wanted.append(one.decide(float(now), told(arrived=now // 480), ready(1)).wanted)
    assert set(wanted) == {1}


def test_to_zero_after_the_idle_time_from_the_last_request() -> None:
    one = scaler(low=0, idle=600.0)
    wanted = [one.decide(float(now), told(arrived=min(now, 100)), ready(1)).wanted for now in range(0, 800, 5)]
    assert wanted.index(0) * 5 == 100 + 600


@pytest.mark.parametrize(
    "signals", [told(held=1.0), told(in_flight=1.0), None], ids=["one waits", "one runs", "nobody tells"]
)
def test_not_to_zero_while_somebody_needs_it_or_nobody_knows(signals: PoolSignals | None) -> None:
    one = scaler(low=0, idle=60.0)
    assert {one.decide(float(now), signals, ready(1)).wanted for now in range(0, 3000, 5)} == {1}


def test_from_zero_by_a_request_that_waits_and_only_once_for_many() -> None:
    one = scaler(low=0, idle=60.0)
    assert one.decide(0.0, told(), []).wanted == 0
    woken = one.decide(1.0, told(arrived=300, held=300.0), [])
    assert (woken.wanted, woken.reason) == (1, Reason.HELD)
    assert one.decide(2.0, told(arrived=300, held=300.0), ready(1, phase=Phase.LOADING)).wanted == 1


def test_from_zero_by_a_request_that_gave_up_before_anybody_looked() -> None:
    one = scaler(low=0)
    one.decide(0.0, told(arrived=7), [])
    assert one.decide(15.0, told(arrived=8), []).wanted == 1


def test_from_zero_not_without_quota() -> None:
    decision = scaler(low=0).decide(0.0, told(held=3.0), [], Limits(replicas=0))
    assert (decision.wanted, decision.reason) == (0, Reason.LIMITED)


# --- restart


def test_a_restart_goes_on_with_what_was_half_over() -> None:
    before = scaler()
    for now in range(1000, 1020):
        before.decide(float(now), told(), ready(1, BUSY))
    saved = json.loads(json.dumps(before.snapshot(1019.0)))
    after = scaler()
    after.restore(5.0, saved, away_s=2.0)
    wanted = [after.decide(5.0 + second, told(), ready(1, BUSY)).wanted for second in range(20)]
    # it has held for 19 s, and for the 2 s of the restart
    assert wanted.index(2) == 30 - 19 - 2


def test_after_a_long_absence_a_condition_begins_anew_but_a_pause_goes_on() -> None:
    before = scaler(cooldown=300.0)
    for now in range(31):
        before.decide(float(now), told(), ready(1, BUSY))
    after = scaler(cooldown=300.0, down=replace(ScalingSpec().down, for_seconds=10.0))
    after.restore(0.0, before.snapshot(31.0), away_s=100.0)
    wanted = [after.decide(float(second), told(), ready(2)).wanted for second in range(250)]
    assert wanted.index(1) == 300 - 1 - 100


@pytest.mark.parametrize("saved", [{}, {"policy": 3}, {"grew_s": "x", "asked": -1}, {"policy": {"kind": "target"}}])
def test_what_does_not_fit_is_passed_over(saved: dict[str, Any]) -> None:
    one = scaler()
    one.restore(0.0, saved, 1.0)
    assert one.decide(0.0, told(), ready(1)).wanted == 1


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(["threshold", "target"]),
    st.dictionaries(st.sampled_from(["above_for_s", "below_for_s", "speed", "cold_starts", "peak"]), ANYTHING),
    st.dictionaries(st.sampled_from(["grew_s", "shrank_s"]), ANYTHING),
    st.dictionaries(st.sampled_from(["idle_s", "arrived", "refused", "sources"]), ANYTHING),
)
def test_whatever_a_file_says_a_decision_is_made_and_can_be_saved_again(
    policy: str, learned: dict[str, Any], times: dict[str, Any], asked: dict[str, Any]
) -> None:
    one = scaler(policy=policy)
    one.restore(1000.0, {"policy": {"kind": policy, **learned}, "asked": asked, **times}, 1.0)
    for second in range(22):
        decision = one.decide(1000.0 + second, told(float(second), prompt_tokens=100.0 * second), ready(3))
        assert 1 <= decision.wanted <= 8
        json.dumps(one.snapshot(1000.0 + second), allow_nan=False)


def test_nobody_asked_before_a_restart_and_nobody_since() -> None:
    """The gateway's counters tell it, so the time without a request goes on."""
    before = scaler(low=0, idle=100.0)
    for now in range(61):
        before.decide(float(now), told(7.0), ready(1))
    saved = json.loads(json.dumps(before.snapshot(60.0)))

    def after(arrived: float) -> list[int]:
        one = scaler(low=0, idle=100.0)
        one.restore(500.0, saved, away_s=20.0)
        return [one.decide(500.0 + second, told(arrived), ready(1)).wanted for second in range(120)]

    assert after(7.0).index(0) == 100 - 60 - 20
    assert after(8.0).index(0) == 100  # somebody came in between


def test_bounds_that_change_forget_nothing() -> None:
    old = scaler(policy="target", capacity=1.0, high=8)
    for now in range(100):
        old.decide(float(now), told(6.0 * now, prompt_tokens=600.0 * now), ready(8))
    new = scaler(policy="target", capacity=1.0, high=9)
    new.follow(100.0, old)
    after = new.decide(100.0, told(600.0, prompt_tokens=60_000.0), ready(5))
    assert (after.wanted, after.reason) == (9, Reason.LIMITED)


def test_another_policy_begins_with_what_it_can_use() -> None:
    old = scaler()
    for now in range(31):
        old.decide(float(now), told(), ready(1, BUSY))
    new = scaler(policy="target", capacity=1.0, cooldown=60.0)
    new.follow(31.0, old)
    assert new.snapshot(31.0)["grew_s"] == 1.0


def test_a_crash_loop_does_not_grow_a_pool() -> None:
    """All that are started crash, while requests wait for them: one more is tried, not one after another."""
    one, have = scaler(), 1
    for now in range(3000):
        phase = Phase.STARTING if now % 20 < 3 else Phase.FAILING
        have = one.decide(float(now), told(held=500.0), ready(have, phase=phase)).wanted
    assert have == 2


def test_a_few_that_fail_keep_nobody_from_growing() -> None:
    one = scaler()
    there = ready(4, BUSY) + ready(2, phase=Phase.FAILING)
    assert [one.decide(float(now), told(), there).wanted for now in range(31)][-1] == 7


def test_at_its_least_a_pool_does_not_shrink_every_second() -> None:
    one = scaler()
    for now in range(400):
        decision = one.decide(float(now), told(), ready(1))
    assert (decision.wanted, decision.reason) == (1, Reason.STEADY)


# --- telling


def test_every_decision_has_a_reason_a_sentence_and_numbers() -> None:
    decision = scaler().decide(0.0, told(), ready(2))
    assert json.loads(json.dumps(decision.to_mapping())) == decision.to_mapping()
    assert decision.sentence
    assert {"ready", "coming", "pending", "least", "most", "value"} <= set(decision.numbers)


def test_the_journal_keeps_what_happened_and_not_each_quiet_second() -> None:
    one, journal = scaler(), Journal()
    for now in range(31):
        journal.add(one.decide(float(now), told(), ready(1, BUSY)))
    for now in range(31, 131):
        journal.add(one.decide(float(now), told(), ready(2, 10.0)))
    assert [(since, each.at, each.reason) for since, each in journal] == [
        (0.0, 29.0, Reason.WAITING),
        (30.0, 30.0, Reason.ABOVE),
        (31.0, 130.0, Reason.STEADY),
    ]
