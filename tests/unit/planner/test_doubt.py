"""How far a plan's speed may be off, in replicas."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilocard.perf.builtin import BUILTIN
from kilocard.planner.doubt import Doubt, covers, doubt
from kilocard.planner.fleet import Sizing

ANY = next(iter(BUILTIN.values()))
MODELLED = Sizing.modelled()


def of(
    median: float | None, p90: float | None, *, rate: float | None = 20, each: float = 4.0, replicas: int = 8
) -> Doubt:
    return doubt(
        replace(ANY, error=median, error_p90=p90), MODELLED, rate_per_s=rate, each_per_s=each, replicas=replicas
    )


def test_both_errors_are_said_in_replicas() -> None:
    found = of(0.10, 0.40)
    assert found.median.replicas == (7, 8)
    assert found.p90.replicas == (5, 10)
    assert found.replicas_text(8) == (
        "8 replicas; 7 to 8 within the median error of 10%, 5 to 10 within the 90th percentile's 40%"
    )


def test_the_headroom_carries_the_rate_up_to_an_error_that_is_named() -> None:
    found = of(0.10, 0.40)
    # 8 replicas of 4 requests/s lose 5 % between them and are asked for 20
    assert found.covered == pytest.approx(8 * 4 * 0.95 / 20 - 1)
    assert (
        covers(found) == "the headroom covers both: the rate is carried while speed is over-estimated by less than 52%"
    )
    assert covers(of(0.10, 0.60)).endswith("beyond it requests wait")


def test_measured_replicas_that_are_full_have_nothing_to_spare() -> None:
    profile = replace(ANY, error=0.02, error_p90=0.05)
    full, roomy = (
        doubt(profile, Sizing.measured(), rate_per_s=20, each_per_s=2.0, replicas=count) for count in (10, 11)
    )
    assert (full.covered, full.median.replicas) == (0.0, (10, 11))
    assert covers(full) == "nothing is left over: where they are slower, requests wait"
    assert roomy.covered == pytest.approx(0.1)


def test_a_median_alone_has_a_tail_of_three_times_it() -> None:
    assert of(0.10, None).p90.error == pytest.approx(0.30)
    assert of(None, None).p90.error == pytest.approx(0.90)


def test_without_a_rate_there_are_no_replicas_to_count() -> None:
    found = of(0.10, 0.40, rate=None)
    assert found.median.replicas is None
    assert found.covered is None
    assert found.replicas_text(1) == covers(found) == ""
    assert found.off == "10% at the median, 40% at the 90th percentile"


@given(st.floats(0, 3), st.floats(0, 3), st.floats(0.01, 1e3), st.floats(0.01, 1e2))
def test_the_wider_error_has_the_wider_span(median: float, more: float, rate: float, each: float) -> None:
    sizing = Sizing.measured()
    planned = sizing.replicas(rate, each)
    profile = replace(ANY, error=median, error_p90=median + more)
    found = doubt(profile, sizing, rate_per_s=rate, each_per_s=each, replicas=planned)
    assert found.median.replicas is not None
    assert found.p90.replicas is not None
    (few, many), (fewer, most) = found.median.replicas, found.p90.replicas
    assert fewer <= few <= planned <= many <= most
