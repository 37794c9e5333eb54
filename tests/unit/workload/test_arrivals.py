"""Arrival processes: their rates, their bursts, their order."""

from __future__ import annotations

from itertools import islice, pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilocard.core.errors import UsageError
from kilocard.core.statistics import deviation, mean
from kilocard.workload.arrivals import Arrivals, AtOnce, Constant, Gamma, Poisson, Ramp


def first(arrivals: Arrivals, count: int, seed: int = 1) -> list[float]:
    return list(islice(arrivals.times(Random(seed)), count))


def gaps(times: list[float]) -> list[float]:
    return [after - before for before, after in pairwise(times)]


def test_constant() -> None:
    assert first(Constant(4), 5) == [0, 0.25, 0.5, 0.75, 1.0]
    assert first(Constant(10), 1_000_001)[-1] == 100_000, "roundings do not add up"


def test_at_once() -> None:
    assert first(AtOnce(), 3) == [0, 0, 0]


@pytest.mark.parametrize("cv", [0.3, 1.0, 2.0])
def test_gamma_has_the_rate_and_the_burstiness_asked_for(cv: float) -> None:
    found = gaps(first(Gamma(20, cv), 20_000))
    assert 1 / mean(found) == pytest.approx(20, rel=0.05)
    assert deviation(found) / mean(found) == pytest.approx(cv, rel=0.05)


def test_poisson_gaps_have_cv_1() -> None:
    found = gaps(first(Poisson(5), 20_000))
    assert 1 / mean(found) == pytest.approx(5, rel=0.03)
    assert deviation(found) / mean(found) == pytest.approx(1, rel=0.03)


def test_burstiness_as_vllm_means_it() -> None:
    assert Gamma.of_burstiness(3, 0.25) == Gamma(3, 2)
    assert Gamma.of_burstiness(3, 1).cv == 1


def test_ramp_rises_and_then_holds() -> None:
    times = first(Ramp(10, 50, over_s=100), 10_000)
    in_window = [sum(low <= at < low + 10 for at in times) / 10 for low in (0, 90, 150)]
    assert in_window == pytest.approx([12, 48, 50], rel=0.2)
    assert sum(at < 100 for at in times) == pytest.approx(3000, rel=0.05)


def test_ramp_from_nothing_downwards_and_flat() -> None:
    assert sum(at < 100 for at in first(Ramp(0, 20, over_s=100), 2000)) == pytest.approx(1000, rel=0.1)
    assert sum(at < 100 for at in first(Ramp(30, 10, over_s=100), 4000)) == pytest.approx(2000, rel=0.1)
    assert first(Ramp(5, 5, over_s=10), 50) == pytest.approx(first(Poisson(5), 50))


@given(
    st.sampled_from([Constant(3), Poisson(0.5), Gamma(100, 5), Gamma(7, 0.1), Ramp(0, 9, 5), Ramp(9, 0.1, 50)]),
    st.integers(0, 2**32),
)
def test_times_never_decrease_and_repeat_with_the_seed(arrivals: Arrivals, seed: int) -> None:
    times = first(arrivals, 100, seed)
    assert times == sorted(times)
    assert times[0] >= 0
    assert times == first(arrivals, 100, seed)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Constant(0),
        lambda: Poisson(-1),
        lambda: Gamma(1, 0),
        lambda: Gamma.of_burstiness(1, float("nan")),
        lambda: Ramp(1, 0, 10),
        lambda: Ramp(-1, 1, 10),
        lambda: Ramp(1, 2, 0),
    ],
)
def test_impossible_rates_are_refused(wrong: object) -> None:
    with pytest.raises(UsageError, match=r"must be|is 0 or more"):
        wrong()  # type: ignore[operator]  # a lambda of the list above
