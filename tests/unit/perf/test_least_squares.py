"""Least squares without negative values."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilocard.perf.least_squares import robust, solve


def test_a_line() -> None:
    rows = [(1.0, float(x)) for x in range(5)]
    found = solve(rows, [3 + 2 * x for x in range(5)], [1.0] * 5)
    assert found.values == pytest.approx((3, 2))
    assert found.residual == pytest.approx(0, abs=1e-6)


def test_what_would_be_negative_is_0_and_the_rest_is_the_best_without_it() -> None:
    # The plain line through these points falls.
    found = solve([(1.0, 0.0), (1.0, 1.0), (1.0, 2.0)], [3.0, 2.0, 1.0], [1.0] * 3)
    assert found.values == pytest.approx((2, 0))


def test_weights_count_as_repeated_rows() -> None:
    rows, wanted = [(1.0, 1.0), (1.0, 2.0), (1.0, 4.0)], [1.0, 3.0, 4.0]
    weighted = solve(rows, wanted, [1.0, 3.0, 1.0])
    repeated = solve([*rows, rows[1], rows[1]], [*wanted, 3.0, 3.0], [1.0] * 5)
    assert weighted.values == pytest.approx(repeated.values)


def test_columns_that_are_alike_have_no_error_bar() -> None:
    found = solve([(1.0, 2.0), (2.0, 4.0), (3.0, 6.0)], [1.0, 2.0, 3.1], [1.0] * 3)
    assert all(math.isinf(error) for error in found.errors)


def test_a_column_too_small_to_square_is_a_column_of_zeros() -> None:
    found = solve([(1.0, 4.6e-160), (1.0, 0.0), (2.0, 0.0), (2.0, 0.0)], [1.0, 1.0, 2.0, 2.0], [1.0] * 4)
    assert found.values == pytest.approx((1, 0))
    assert found.residual == pytest.approx(0, abs=1e-6)
    assert math.isinf(found.errors[1])


def test_unknowns_of_very_different_size() -> None:
    rng = Random(1)
    rows = [(1.0, rng.uniform(0, 2000), rng.uniform(0, 1e7)) for _ in range(200)]
    found = solve(rows, [0.01 + 1e-4 * a + 1e-10 * b for _, a, b in rows], [1.0] * 200)
    assert found.values == pytest.approx((0.01, 1e-4, 1e-10), rel=1e-6)


def test_standard_errors_are_true_ones() -> None:
    rng = Random(2)
    rows = [(1.0, float(x % 10)) for x in range(50)]
    slopes, errors = [], []
    for _ in range(200):
        found = solve(rows, [5 + 2 * x + rng.gauss(0, 1) for _, x in rows], [1.0] * 50)
        slopes.append(found.values[1])
        errors.append(found.errors[1])
    spread = math.sqrt(sum((slope - 2) ** 2 for slope in slopes) / 200)
    assert sum(errors) / 200 == pytest.approx(spread, rel=0.15)


def test_outliers_lose_their_weight() -> None:
    rng = Random(3)
    rows = [(1.0, rng.random()) for _ in range(200)]
    wanted = [1 + x + rng.gauss(0, 0.01) for _, x in rows]
    for place in range(0, 200, 20):
        wanted[place] += 10
    plain = solve(rows, wanted, [1.0] * 200)
    found = robust(lambda values: rows, wanted, [1.0] * 200, (0.0, 0.0))
    assert abs(plain.values[1] - 1) > 0.3
    assert found.values == pytest.approx((1, 1), abs=0.03)


@given(
    st.lists(st.tuples(*[st.floats(0, 10)] * 3), min_size=4, max_size=12),
    st.tuples(*[st.floats(0, 5)] * 3),
    st.integers(0, 2**32),
)
def test_no_other_values_fit_better(rows: list[tuple[float, ...]], true: tuple[float, ...], seed: int) -> None:
    rng = Random(seed)
    wanted = [sum(a * b for a, b in zip(row, true, strict=True)) + rng.gauss(0, 1) for row in rows]
    weights = [rng.uniform(0.5, 2) for _ in rows]

    def squares(values: tuple[float, ...]) -> float:
        modelled = [sum(a * b for a, b in zip(row, values, strict=True)) for row in rows]
        return sum(w * (m - want) ** 2 for w, m, want in zip(weights, modelled, wanted, strict=True))

    found = solve(rows, wanted, weights)
    assert min(found.values) >= 0
    best = squares(found.values)
    assert best == pytest.approx(found.residual**2 * sum(weights), rel=1e-3, abs=1e-6)
    for _ in range(20):
        other = tuple(max(0.0, value + rng.gauss(0, 0.1)) for value in found.values)
        assert squares(other) >= best * (1 - 1e-6) - 1e-6
