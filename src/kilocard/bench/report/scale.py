"""Axes: from values to places, and where the ticks stand."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kilocard.bench.units import brief, plain

#: of a decade, dense to sparse
_STEPS = ((1, 1.5, 2, 2.5, 3, 4, 5, 6, 8), (1, 1.5, 2, 3, 5, 7), (1, 2, 3, 5), (1, 2, 5), (1, 3), (1,))


@dataclass(frozen=True, slots=True)
class Axis:
    """From `low` to `high`, both included; logarithmic where `log` (then both are above 0)."""

    label: str
    low: float
    high: float
    log: bool = False
    ticks: tuple[float, ...] = ()
    text: Callable[[float], str] = plain

    def place(self, value: float) -> float:
        """0 at `low`, 1 at `high`; values outside stay at the edge."""
        if self.log:
            span = math.log(self.high / self.low)
            at = math.log(max(value, self.low) / self.low) / span if span else 0.5
        else:
            span = self.high - self.low
            at = (value - self.low) / span if span else 0.5
        return min(1.0, max(0.0, at))


def from_zero(label: str, values: Sequence[float], text: Callable[[float], str] = plain, top: float = 0.0) -> Axis:
    """0 to a round number above the largest value (and above `top`)."""
    most = max([*values, top], default=0.0)
    if most < 1e-300:  # nothing, or so little that a part of it has no digits left
        most = 1.0
    step = _round_step(most / 4)
    count = max(1, math.ceil(most / step - 1e-9))
    return Axis(label, 0.0, step * count, ticks=tuple(step * place for place in range(count + 1)), text=text)


def between(label: str, low: float, high: float, text: Callable[[float], str] = plain) -> Axis:
    """Linear, exactly from `low` to `high`, with round ticks."""
    step = _round_step(max(high - low, 1e-9) / 6)
    first = math.ceil(low / step - 1e-9)
    ticks = tuple(step * place for place in range(first, math.floor(high / step + 1e-9) + 1))
    return Axis(label, low, high, ticks=ticks, text=text)


def logarithmic(label: str, values: Sequence[float], text: Callable[[float], str] = brief) -> Axis:
    """Around the values above 0, with as many ticks as can be read."""
    positive = [value for value in values if value > 0] or [1.0]
    low, high = min(positive) / 1.15, max(positive) * 1.15
    if high / low < 4:  # so that noise does not look like a mountain
        middle = math.sqrt(low * high)
        low, high = middle / 2, middle * 2
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in _STEPS:
        ticks = tuple(step * 10.0**decade for decade in decades for step in steps if low <= step * 10.0**decade <= high)
        if len(ticks) <= 6:
            break
    ticks = ticks[:: -(-len(ticks) // 7)] if ticks else ()
    return Axis(label, low, high, log=True, ticks=ticks, text=text)


def loads(label: str, values: Sequence[float], *, log: bool) -> Axis:
    """The measured loads as ticks; logarithmic if asked for and they are spread so."""
    known = sorted(set(values))
    low, high = known[0], known[-1]
    log = log and high / low > 5
    edge = (high / low) ** 0.04 if log else (high - low) * 0.04
    outer = (
        (low / max(edge, 1.05), high * max(edge, 1.05)) if log else (low - (edge or low / 2), high + (edge or low / 2))
    )
    axis = Axis(label, *outer, log=log, text=lambda value: f"{value:g}")
    ticks: list[float] = []
    for value in known:
        if not ticks or axis.place(value) - axis.place(ticks[-1]) > 0.055:
            ticks.append(value)
    return Axis(label, *outer, log=log, ticks=tuple(ticks), text=axis.text)


def _round_step(least: float) -> float:
    """1, 2, 2.5 or 5 times a power of ten, at least so large."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= least * (1 - 1e-9))
