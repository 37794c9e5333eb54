"""Runs → cells of tables: the same case with several seeds, and how two of them compare."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import mean, median
from typing import Any

from benchmarks.policy_study.cases import Case

#: less than this apart is no difference, however often the seeds agree
SAME = 0.02


@dataclass(frozen=True)
class Cell:
    """One number of one case, by seed."""

    by_seed: Mapping[int, float]

    @property
    def mean(self) -> float:
        return mean(self.by_seed.values())

    @property
    def half_range(self) -> float:
        """Half of what lies between the lowest and the highest seed."""
        return (max(self.by_seed.values()) - min(self.by_seed.values())) / 2

    def over(self, other: Cell) -> list[float]:
        """Ratios to another, seed by seed: both had the same arrivals, so most of the chance cancels out."""
        return [value / other.by_seed[seed] for seed, value in self.by_seed.items() if seed in other.by_seed]


@dataclass(frozen=True)
class Comparison:
    """One policy over another in many cells: `ratios` are medians over the seeds. In `lower` and `higher` of the cells
    all seeds agree, by more than SAME on average; in the others it is noise."""

    ratios: list[float]
    lower: int
    higher: int

    @property
    def cells(self) -> int:
        return len(self.ratios)

    @property
    def same(self) -> int:
        return self.cells - self.lower - self.higher


def compare(pairs: Iterator[tuple[Cell, Cell]]) -> Comparison:
    ratios: list[float] = []
    lower = higher = 0
    for one, other in pairs:
        each = one.over(other)
        if not each:
            continue
        ratios.append(median(each))
        lower += max(each) < 1.0 and mean(each) < 1.0 - SAME
        higher += min(each) > 1.0 and mean(each) > 1.0 + SAME
    return Comparison(ratios, lower, higher)


class Table:
    """All runs of a record, to be asked for by what they are."""

    def __init__(self, runs: Mapping[str, Mapping[str, Any]]) -> None:
        self._found: dict[Case, dict[int, Mapping[str, Any]]] = {}
        for run in runs.values():
            told = dict(run["case"])
            seed = told.pop("seed")
            case = Case(**{**told, "pools": tuple(told["pools"]), "seed": 0})
            self._found.setdefault(case, {})[seed] = run["numbers"]

    def __len__(self) -> int:
        return sum(map(len, self._found.values()))

    def cell(self, number: str, case: Case) -> Cell | None:
        """`case` with seed 0. None: not played yet."""
        found = self._found.get(case)
        return Cell({seed: numbers[number] for seed, numbers in found.items()}) if found else None

    def overloaded(self, case: Case) -> bool:
        """More came than left, or was turned away, with most seeds."""
        states = [numbers["state"] for numbers in self._found.get(case, {}).values()]
        return 2 * states.count("overloaded") > len(states)
