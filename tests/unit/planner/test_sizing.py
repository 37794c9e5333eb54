"""How many replicas, and what to say about it."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilocard.planner.advice import Optimisation, Verdict, advise
from kilocard.planner.fleet import MEASURED_HEADROOM, MODELLED_HEADROOM, Sizing
from kilocard.planner.growth import FIRST, growth

MEASURED, MODELLED = Sizing(MEASURED_HEADROOM), Sizing(MODELLED_HEADROOM)


@pytest.mark.parametrize(("tokens_per_s", "replicas"), [(1060, 10), (1100, 10), (1200, 9), (1300, 9)])
def test_twenty_requests_of_500_tokens_take_eight_to_ten_replicas_of_about_1100(
    tokens_per_s: float, replicas: int
) -> None:
    assert MEASURED.replicas(20, tokens_per_s / 500) == replicas


def test_a_model_of_speed_needs_more_room_than_a_measurement() -> None:
    assert MODELLED.replicas(20, 1100 / 500) == 13


def test_one_replica_loses_nothing_to_its_neighbours_but_is_never_filled() -> None:
    assert MEASURED.replicas(0.95, 1.0) == 1
    assert MEASURED.replicas(0.96, 1.0) == 2


@given(st.floats(0.01, 1e4), st.floats(0.01, 1e3), st.floats(0.3, 1.0), st.floats(0.5, 1.0))
def test_the_fewest_that_carry_it(rate: float, each: float, headroom: float, efficiency: float) -> None:
    sizing = Sizing(headroom, efficiency)
    count = sizing.replicas(rate, each)
    assert count * each * sizing.usable(count) >= rate * (1 - 1e-6)
    if count > 2:
        assert (count - 1) * each * sizing.usable(count - 1) < rate * (1 + 1e-6)


def advice(target: float, replica: float = 1000.0, replicas: int = 2, **more: object) -> Verdict:
    return advise(
        target_tokens_per_s=target,
        replica_tokens_per_s=replica,
        gpus_per_replica=1,
        replicas=replicas,
        usable=0.9,
        **more,  # type: ignore[arg-type]  # optimisations only
    ).verdict


def test_verdicts_follow_the_ratio() -> None:
    fp8 = (Optimisation("FP8 weights", 2000.0),)
    assert advice(500, replicas=1) is Verdict.STAY
    assert advice(1700) is Verdict.ADD
    assert advice(1700, optimisations=fp8) is Verdict.OPTIMISE
    assert advice(2700, replicas=4, optimisations=fp8) is Verdict.ADD  # not enough even so
    assert advice(5000, replicas=6, optimisations=fp8) is Verdict.CLUSTER
    assert advice(12_000, replicas=14) is Verdict.CLUSTER


def test_the_number_behind_the_verdict_is_said() -> None:
    found = advise(target_tokens_per_s=10_000, replica_tokens_per_s=1100, gpus_per_replica=1, replicas=10, usable=0.95)
    assert found.ratio == pytest.approx(9.09, abs=0.01)
    assert "10,000 / 1,100" in found.reasons[0] and "9.09" in found.reasons[0]
    assert (
        "design it as a cluster"
        in advise(
            target_tokens_per_s=20_000, replica_tokens_per_s=1100, gpus_per_replica=1, replicas=20, usable=0.95
        ).reasons[0]
    )


@given(st.integers(1, 2000), st.floats(0.01, 50))
def test_growth_begins_with_eight_at_most_passes_the_need_and_ends_above_it(replicas: int, rate: float) -> None:
    steps = growth(replicas, rate)
    counts = [step.replicas for step in steps]
    assert counts[0] <= FIRST and counts == sorted(set(counts))
    assert replicas in counts and counts[-1] > replicas
    assert all(b <= 2 * a + 1 for a, b in pairwise(counts))
