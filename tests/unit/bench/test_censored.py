from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilocard.bench.censored import spread
from kilocard.bench.histogram import histogram
from kilocard.core import statistics

times = st.lists(st.floats(1e-6, 1e4), min_size=1, max_size=60)


@given(times)
def test_without_cut_off_values_it_is_the_plain_percentile(values: list[float]) -> None:
    seen = spread(values)
    assert seen is not None and seen.at_least == []
    assert seen.p95 == statistics.percentile(values, 0.95)
    assert seen.max == max(values)


@given(times, times)
def test_percentiles_rise_and_stay_within_what_was_seen(known: list[float], cut: list[float]) -> None:
    seen = spread(known, cut)
    assert seen is not None
    assert min(known) <= seen.p50 <= seen.p95 <= seen.p99 <= seen.max
    assert seen.n == len(known) + len(cut)


def test_the_median_survives_cutting_that_would_bend_it() -> None:
    """Answers of 0 to 10 s, each cut at a moment of its own: dropping the cut ones says 3.7 s instead of 5."""
    rng = random.Random(1)
    pairs = [(rng.uniform(0, 10), rng.uniform(0, 15)) for _ in range(5000)]
    known = [value for value, cut in pairs if value <= cut]
    seen = spread(known, [cut for value, cut in pairs if value > cut])
    assert seen is not None
    assert seen.p50 == pytest.approx(5.0, abs=0.2)
    assert statistics.percentile(known, 0.5) < 4.0


def test_what_lies_past_the_last_known_value_is_only_a_lower_bound() -> None:
    seen = spread([1.0, 2.0, 3.0], [5.0] * 7)
    assert seen is not None
    assert seen.at_least == ["p50", "p95", "p99", "mean", "max"]
    assert seen.p50 == 3.0


def test_nothing_known_is_none() -> None:
    assert spread([]) is None
    assert spread([], [1.0]) is None


@given(times)
def test_a_histogram_counts_every_value_once(values: list[float]) -> None:
    made = histogram(values)
    assert made is not None
    assert sum(made.counts) == len(values)
    assert len(made.bounds) == len(made.counts) + 1
    assert made.bounds == sorted(set(made.bounds))
