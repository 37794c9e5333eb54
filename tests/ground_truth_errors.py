"""Errors against rows of a log, and how a table of them is printed."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Error:
    """One row asked one question; `expected` and `found` in the question's unit."""

    row: str
    model: str
    expected: float
    found: float
    #: relative error that the rounding of the log's own numbers may make
    rounding: float = 0.0

    @property
    def relative(self) -> float:
        return self.found / self.expected - 1

    @property
    def absolute(self) -> float:
        return self.found - self.expected


def summary(errors: list[Error], *, gib: bool = False) -> str:
    sizes = sorted(abs(error.absolute if gib else error.relative) for error in errors)
    unit, scale, digits = (" GiB", 1.0, 3) if gib else (" %", 100.0, 3)
    at = [statistics.mean(sizes), statistics.median(sizes), sizes[int(0.95 * (len(sizes) - 1))], sizes[-1]]
    shown = [f"{value * scale:.{digits}f}{unit}" for value in at]
    return f"{len(errors)} rows: mean {shown[0]}, median {shown[1]}, 95th percentile {shown[2]}, worst {shown[3]}"


def table(title: str, errors: list[Error], limit: float, misses: Mapping[str, str], *, gib: bool = False) -> str:
    lines = [f"## {title}", "", summary(errors, gib=gib), ""]
    for error in errors:
        size = error.absolute if gib else error.relative
        if abs(size) > limit + error.rounding:
            shown = f"{size:+.2f} GiB" if gib else f"{size:+.2%}"
            lines.append(
                f"- {error.row} {error.model}: {error.expected:g} in the log, {error.found:g} here, {shown}. "
                f"{misses.get(error.row, 'not explained')}"
            )
    return "\n".join(lines) + "\n"
