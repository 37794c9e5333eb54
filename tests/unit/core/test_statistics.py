"""Percentiles and means."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilocard.core.statistics import (
    deviation,
    mean,
    of_sorted,
    percentile,
    percentiles,
    weighted_mean,
    weighted_percentile,
)

finite = st.floats(-1e9, 1e9)


def test_percentiles_interpolate_as_numpy_does() -> None:
    # numpy.percentile([15, 20, 35, 40, 50], [40, 50, 99]) → 29, 35, 49.6
    assert percentiles([35, 20, 15, 50, 40], (0.4, 0.5, 0.99)) == pytest.approx([29, 35, 49.6])


def test_the_ends_and_a_single_value() -> None:
    assert percentiles([3, 1, 2], (0, 1)) == [1, 3]
    assert percentile([7], 0.99) == 7


def test_infinite_values_do_not_make_nan() -> None:
    assert percentiles([1, float("inf"), float("inf")], (0.5, 0.9)) == [float("inf"), float("inf")]


@pytest.mark.parametrize("share", [-0.1, 1.1, 99])
def test_a_share_is_between_0_and_1(share: float) -> None:
    with pytest.raises(ValueError, match=r"0\.99 is the 99th"):
        percentile([1, 2], share)


def test_nothing_has_no_statistics() -> None:
    for function in (mean, lambda values: percentile(values, 0.5), deviation):
        with pytest.raises(ValueError, match="no values"):
            function([])


@given(st.lists(finite, min_size=2, max_size=50))
def test_agrees_with_the_standard_library(values: list[float]) -> None:
    quartiles = statistics.quantiles(values, n=4, method="inclusive")
    assert percentiles(values, (0.25, 0.5, 0.75)) == pytest.approx(quartiles, rel=1e-9, abs=1e-3)
    assert mean(values) == pytest.approx(statistics.fmean(values), rel=1e-9, abs=1e-6)
    assert deviation(values) == pytest.approx(statistics.stdev(values), rel=1e-6, abs=1e-3)


@given(st.lists(finite, min_size=1, max_size=50), st.floats(0, 1), st.floats(0, 1))
def test_percentiles_rise_with_the_share_and_stay_inside(values: list[float], one: float, other: float) -> None:
    ordered = sorted(values)
    low, high = of_sorted(ordered, min(one, other)), of_sorted(ordered, max(one, other))
    assert ordered[0] <= low <= high + 1e-6 <= ordered[-1] + 2e-6


def test_weights() -> None:
    assert weighted_mean([1, 3], [3, 1]) == 1.5
    assert weighted_percentile([10, 1, 5], [1, 1, 8], 0.5) == 5
    assert weighted_percentile([10, 1, 5], [1, 1, 8], 0.95) == 10
    assert weighted_percentile([10, 1], [0, 1], 1) == 1, "what has no weight does not count"
    for values, weights in (([1.0], [0.0]), ([1.0], [1.0, 2.0]), ([1.0, 2.0], [2.0, -1.0])):
        with pytest.raises(ValueError, match="weight"):
            weighted_percentile(values, weights, 0.5)
