"""Intervals, and whether a difference is noise."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilocard.core.confidence import difference, mean_interval, percentile_interval, t_cdf, t_quantile


@pytest.mark.parametrize(
    ("freedom", "quantile"),
    # from printed tables of Student's t, two-sided 95 %
    [(1, 12.706), (2, 4.303), (4, 2.776), (9, 2.262), (30, 2.042), (1000, 1.962)],
)
def test_t_quantile_is_that_of_the_tables(freedom: int, quantile: float) -> None:
    assert t_quantile(0.975, freedom) == pytest.approx(quantile, abs=6e-4)
    assert t_quantile(0.025, freedom) == pytest.approx(-quantile, abs=6e-4)


@given(st.floats(0.01, 0.99), st.floats(1, 200))
def test_quantile_inverts_the_distribution(share: float, freedom: float) -> None:
    assert t_cdf(t_quantile(share, freedom), freedom) == pytest.approx(share, abs=1e-9)


def test_interval_of_three_repeats() -> None:
    found = mean_interval([100, 104, 102])
    assert found.middle == 102
    # 4.303 × 2 / √3
    assert found.low == pytest.approx(97.032, abs=1e-3)
    assert found.high == pytest.approx(106.968, abs=1e-3)


def test_one_repeat_says_nothing_about_scatter() -> None:
    assert mean_interval([100]).low is None
    assert difference([100], [200, 201]).noise is None


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    rng = Random(1)
    held = 0
    for _ in range(400):
        found = mean_interval([rng.gauss(10, 2) for _ in range(4)])
        held += found.low <= 10 <= found.high  # type: ignore[operator]  # four repeats always have bounds
    assert 0.92 < held / 400 < 0.98


def test_percentile_interval_holds_the_truth() -> None:
    rng = Random(2)
    held = 0
    for _ in range(300):
        found = percentile_interval([rng.random() for _ in range(200)], 0.9)
        held += found.low <= 0.9 <= found.high  # type: ignore[operator]  # 200 values reach far enough
    assert held / 300 > 0.92


def test_p99_of_few_values_has_no_upper_bound() -> None:
    found = percentile_interval(list(range(100)), 0.99)
    assert found.high is None
    assert found.low is not None


def test_welch_example() -> None:
    # two samples of 15 whose p-value several statistics packages give as 0.021378
    a = [27.5, 21.0, 19.0, 23.6, 17.0, 17.9, 16.9, 20.1, 21.9, 22.6, 23.1, 19.6, 19.0, 21.7, 21.4]
    b = [27.1, 22.0, 20.8, 23.4, 23.4, 23.5, 25.8, 22.0, 24.8, 20.2, 21.9, 22.1, 22.9, 20.5, 24.4]
    found = difference(a, b)
    assert found.p_value == pytest.approx(0.021378, abs=1e-6)
    assert found.noise is False
    assert found.change == pytest.approx(2.16667, abs=1e-5)


def test_scatter_of_repeats_is_called_noise_and_a_real_change_is_not() -> None:
    before = [1000.0, 1040.0, 980.0]
    assert difference(before, [1010.0, 990.0, 1050.0]).noise is True
    found = difference(before, [1210.0, 1190.0, 1250.0])
    assert found.noise is False
    assert found.low is not None
    assert found.low > 100
    assert found.share == pytest.approx(0.209, abs=1e-3)


def test_repeats_that_do_not_scatter() -> None:
    assert difference([5, 5], [5, 5]).noise is True
    assert difference([5, 5], [6, 6]).noise is False


def test_false_alarms_are_as_rare_as_stated() -> None:
    rng = Random(3)
    alarms = sum(
        difference([rng.gauss(0, 1) for _ in range(3)], [rng.gauss(0, 3) for _ in range(3)]).noise is False
        for _ in range(400)
    )
    assert alarms / 400 < 0.09
