"""Least squares with unknowns that can't be negative, and rows that may be wrong. Small and exact: up to 8 unknowns.

The best solution without negative values is the plain solution over the unknowns that it does not set to 0. With few
unknowns all choices of those can be tried. Outliers lose weight by Huber's rule, round by round.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

from kilocard.core.statistics import percentile

#: residuals beyond so many robust standard deviations count less. Wide: a slow step now and then is part of the engine
HUBER = 4.0
#: a residual below this share of what was wanted is no outlier, however well the other rows fit
FLOOR = 0.02
ROUNDS = 12
#: of the median absolute deviation to the standard deviation of a normal distribution
_MAD = 1.4826
#: a pivot below this share of the column's own size: the column is a mixture of the others
_SINGULAR = 1e-10
#: a column whose squares come to less is a column of zeros: what is divided by it is no number any more
_NOTHING = 1e-290

Row = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Solution:
    """One value for each unknown; `errors` are standard errors, infinite where the rows can't tell."""

    values: tuple[float, ...]
    errors: tuple[float, ...]
    #: weighted root mean square of what is left
    residual: float


@dataclass(slots=True)
class _Sums:
    """Normal equations: all that a weighted least-squares problem is."""

    matrix: list[list[float]]
    right: list[float]
    squares: float
    weight: float


def solve(rows: Sequence[Row], wanted: Sequence[float], weights: Sequence[float]) -> Solution:
    """values ≥ 0 that bring Σ weight × (row · values − wanted)² to its least. All rows have the same length."""
    sums = _sums(rows, wanted, weights)
    best, squares = [0.0] * len(rows[0]), sums.squares
    for count in range(1, len(best) + 1):
        for chosen in combinations(range(len(best)), count):
            found = _on(sums, chosen)
            if found is None or min(found) < 0:
                continue
            left = sums.squares - math.fsum(
                value * sums.right[place] for place, value in zip(chosen, found, strict=True)
            )
            # A further unknown has to bring something, or rounding chooses.
            if left < squares * (1 - 1e-9):
                squares = left
                best = [0.0] * len(best)
                for place, value in zip(chosen, found, strict=True):
                    best[place] = value
    squares = max(squares, 0.0)
    return Solution(tuple(best), _errors(sums, squares, len(rows)), math.sqrt(squares / sums.weight))


def robust(
    rows_of: Callable[[Sequence[float]], Sequence[Row]],
    wanted: Sequence[float],
    weights: Sequence[float],
    start: Sequence[float],
) -> Solution:
    """Rows that depend on the values (which side of a maximum holds): solved again until nothing moves."""
    values: Sequence[float] = start
    usual = percentile((math.sqrt(weight) * abs(want) for want, weight in zip(wanted, weights, strict=True)), 0.5)
    huber = [1.0] * len(wanted)
    solution = Solution(tuple(start), (math.inf,) * len(start), math.inf)
    for _ in range(ROUNDS):
        rows = rows_of(values)
        solution = solve(rows, wanted, [weight * factor for weight, factor in zip(weights, huber, strict=True)])
        left = [
            abs(math.sqrt(weight) * (want - sum(map(float.__mul__, row, solution.values))))
            for row, want, weight in zip(rows, wanted, weights, strict=True)
        ]
        limit = max(HUBER * _MAD * percentile(left, 0.5), FLOOR * usual)
        huber = [1.0 if each <= limit else limit / each for each in left]
        moved = max(abs(new - old) / (abs(new) + 1e-12) for new, old in zip(solution.values, values, strict=True))
        values = solution.values
        if moved < 1e-6:
            break
    return solution


def _sums(rows: Sequence[Row], wanted: Sequence[float], weights: Sequence[float]) -> _Sums:
    size = len(rows[0])
    matrix = [[0.0] * size for _ in range(size)]
    right = [0.0] * size
    squares = 0.0
    for row, want, weight in zip(rows, wanted, weights, strict=True):
        squares += weight * want * want
        for place, value in enumerate(row):
            if value:
                scaled = weight * value
                right[place] += scaled * want
                line = matrix[place]
                for other in range(place, size):
                    line[other] += scaled * row[other]
    for place in range(size):
        for other in range(place):
            matrix[place][other] = matrix[other][place]
    return _Sums(matrix, right, squares, math.fsum(weights))


def _on(sums: _Sums, chosen: Sequence[int]) -> list[float] | None:
    """The plain solution over these unknowns; None when they can't be told apart."""
    inverse = _inverse(sums, chosen)
    if inverse is None:
        return None
    right = [sums.right[place] for place in chosen]
    return [math.fsum(map(float.__mul__, line, right)) for line in inverse]


def _inverse(sums: _Sums, chosen: Sequence[int]) -> list[list[float]] | None:
    """Gauss and Jordan, columns scaled to size 1 first: the unknowns differ by factors of a million."""
    if any(sums.matrix[place][place] < _NOTHING for place in chosen):
        return None
    scale = [math.sqrt(sums.matrix[place][place]) for place in chosen]
    size = len(chosen)
    work = [
        [sums.matrix[a][b] / (scale[i] * scale[j]) for j, b in enumerate(chosen)] + [float(i == j) for j in range(size)]
        for i, a in enumerate(chosen)
    ]
    for column in range(size):
        pivot = max(range(column, size), key=lambda line, column=column: abs(work[line][column]))  # type: ignore[misc]  # mypy can't type a default of a lambda
        if abs(work[pivot][column]) < _SINGULAR:
            return None
        work[column], work[pivot] = work[pivot], work[column]
        head = work[column][column]
        work[column] = [value / head for value in work[column]]
        for line in range(size):
            if line != column and (factor := work[line][column]):
                work[line] = [value - factor * top for value, top in zip(work[line], work[column], strict=True)]
    return [[work[i][size + j] / (scale[i] * scale[j]) for j in range(size)] for i in range(size)]


def _errors(sums: _Sums, squares: float, count: int) -> tuple[float, ...]:
    """Standard errors with all unknowns in play, also those at 0: what could not have been told has a large one."""
    errors = [math.inf] * len(sums.right)
    apart = [place for place in range(len(errors)) if sums.matrix[place][place] >= _NOTHING]
    mixed: set[int] = set()
    if _inverse(sums, apart) is None:
        # A column that is a mixture of the others can't be told from them; the rest can, with any basis of those.
        mixed = {
            place for place in apart if _rank(sums, [each for each in apart if each != place]) == _rank(sums, apart)
        }
        basis = [place for place in apart if place not in mixed]
        for place in mixed:
            if _inverse(sums, [*basis, place]) is not None:
                basis.append(place)
        apart = basis
    inverse = _inverse(sums, apart)
    if inverse is not None and count > len(apart):
        variance = squares / (count - len(apart))
        for at, place in enumerate(apart):
            if place not in mixed:
                errors[place] = math.sqrt(max(inverse[at][at], 0.0) * variance)
    return tuple(errors)


def _rank(sums: _Sums, chosen: Sequence[int]) -> int:
    """The size of the largest set of them that can be told apart, found one by one."""
    basis: list[int] = []
    for place in chosen:
        if _inverse(sums, [*basis, place]) is not None:
            basis.append(place)
    return len(basis)
