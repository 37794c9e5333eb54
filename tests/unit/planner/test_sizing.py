"""How many replicas, and what to say about it."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilocard.planner.advice import Optimisation, Verdict, advise
from kilocard.planner.fleet import MOST, PART, REPEAT, Sizing
from kilocard.planner.growth import FIRST, growth

MEASURED, MODELLED = Sizing.measured(), Sizing.modelled()
SIZINGS = st.builds(
    Sizing, st.floats(0.3, 1.0), st.none() | st.floats(0.5, 1.0), st.sampled_from([MOST, 1.0]), st.floats(0, 0.05)
)


@pytest.mark.parametrize(
    ("tokens_per_s", "replicas"),
    [(991, 10), (1000, 10), (1053, 10), (1099, 10), (1110, 9), (1111.2, 9), (1200, 9), (1230, 9), (1250, 8)],
)
def test_twenty_requests_of_500_tokens_take_eight_to_ten_replicas_of_1000_to_1200(
    tokens_per_s: float, replicas: int
) -> None:
    assert MEASURED.replicas(20, tokens_per_s / 500) == replicas


def test_a_count_that_misses_by_less_than_two_measurements_differ_is_not_one_replica_more() -> None:
    assert MEASURED.replicas(10 * (1 + 0.9 * REPEAT), 1.0) == 10
    assert MEASURED.replicas(10 * (1 + 1.1 * REPEAT), 1.0) == 11
    assert MEASURED.replicas(1000, 1.0) == 1000 and MEASURED.replicas(1000.2, 1.0) == 1001, "not ten of a thousand"


def test_a_model_of_speed_needs_more_room_than_a_measurement_and_loses_some_between_replicas() -> None:
    assert MODELLED.replicas(20, 1100 / 500) == 13
    assert MODELLED.usable(1) == 0.75 and MODELLED.usable(2) == pytest.approx(0.7125)
    assert MEASURED.usable(1) == MEASURED.usable(2) == 1.0
    assert MEASURED.for_modelled() == MODELLED


def test_one_modelled_replica_is_never_filled() -> None:
    bold = Sizing.modelled(headroom=1.0)
    assert bold.replicas(0.95, 1.0) == 1
    assert bold.replicas(0.96, 1.0) == 2


def test_what_is_stated_is_taken_off() -> None:
    assert Sizing.measured(efficiency=0.95).replicas(9.5, 1.0) == 10
    assert Sizing.measured(efficiency=0.95).replicas(9.6, 1.0) == 11
    assert Sizing.measured(headroom=0.9).replicas(9.1, 1.0) == 11
    assert Sizing.measured(efficiency=0.95).if_lost() is None
    lost = MEASURED.if_lost()
    assert lost is not None and lost.replicas(9.51, 1.0) == 11


@given(st.floats(0.01, 1e4), st.floats(0.01, 1e3), SIZINGS)
def test_the_fewest_that_carry_it(rate: float, each: float, sizing: Sizing) -> None:
    count = sizing.replicas(rate, each)
    carried = each * sizing.usable(count)
    assert count * carried * (1 + sizing.slack) >= rate * (1 - 1e-6)
    assert count * carried >= rate - (carried if count == 1 else PART * carried) * (1 + 1e-6)
    if count > 2:
        assert (count - 1) * carried < rate * (1 + 1e-6)


@given(st.floats(0.01, 1e4), st.floats(0.01, 1e3), st.floats(1, 10), SIZINGS)
def test_more_load_never_takes_fewer_and_faster_replicas_never_more(
    rate: float, each: float, times: float, sizing: Sizing
) -> None:
    assert sizing.replicas(rate * times, each) >= sizing.replicas(rate, each) >= sizing.replicas(rate, each * times)


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


def test_a_replica_of_several_cards_is_not_one_card() -> None:
    found = advise(target_tokens_per_s=1700, replica_tokens_per_s=1000, gpus_per_replica=8, replicas=2, usable=0.9)
    assert found.verdict is Verdict.ADD_REPLICA and "1 more replica (8 cards) behind" in found.reasons[0]


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
