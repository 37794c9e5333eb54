from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilocard.metrics.quantile import Quantile, quantile
from kilocard.metrics.rates import RateMeter, Reading, freshness, rate


def test_rate_per_second() -> None:
    assert rate(Reading(10.0, 100.0), Reading(12.0, 150.0)) == 25.0


def test_a_counter_that_fell_was_reset_and_counts_from_zero() -> None:
    assert rate(Reading(0.0, 1_000_000.0), Reading(2.0, 40.0)) == 20.0


def test_no_time_no_rate() -> None:
    assert rate(Reading(5.0, 1.0), Reading(5.0, 2.0)) is None


def test_the_meter_slides_skips_gaps_and_sees_restarts() -> None:
    meter = RateMeter(window=10.0)
    assert meter.rate() is None
    meter.add(0.0, 0.0)
    assert meter.rate() is None
    meter.add(1.0, 100.0)
    meter.add(1.0, 100.0)  # the same scrape again
    meter.add(2.0, None)
    meter.add(4.0, 400.0)
    assert meter.rate() == 100.0
    meter.add(5.0, 50.0)  # restart
    assert meter.rate() == 90.0
    for second in range(6, 40):
        meter.add(float(second), 50.0)
    assert meter.rate() == 0.0


@given(st.lists(st.floats(0, 1e9), min_size=2, max_size=20))
def test_a_rate_is_never_negative(values: list[float]) -> None:
    meter = RateMeter(window=5.0)
    for at, value in enumerate(values):
        meter.add(float(at), value)
    result = meter.rate()
    assert result is not None
    assert result >= 0.0


def test_freshness_is_full_for_a_late_scrape_and_fades_to_nothing() -> None:
    assert freshness(0.0, 1.0) == freshness(1.5, 1.0) == 1.0
    assert freshness(3.25, 1.0) == 0.5
    assert freshness(5.0, 1.0) == freshness(500.0, 1.0) == 0.0
    assert freshness(2.0, 4.0) == 1.0


def test_quantiles_inside_buckets() -> None:
    assert quantile({0.1: 0.0, 0.2: 10.0, inf: 10.0}, 0.5) == pytest.approx(Quantile(0.15, False))


def test_a_quantile_past_the_last_finite_bucket_says_so() -> None:
    # SGLang's documentation: 2513 of 11008 first tokens within 30 s
    p50 = quantile({25.0: 2417.0, 30.0: 2513.0, inf: 11008.0}, 0.5)
    assert p50 == Quantile(30.0, True)
    assert str(p50) == "> 30"


def test_an_empty_histogram_has_no_quantile() -> None:
    assert quantile({1.0: 0.0, inf: 0.0}, 0.5) is None
    assert quantile({}, 0.5) is None
