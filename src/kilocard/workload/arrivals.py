"""When requests arrive: endless streams of times in seconds, never decreasing. Rates are requests a second."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Protocol

from kilocard.core.errors import UsageError


class Arrivals(Protocol):
    def times(self, rng: Random) -> Iterator[float]:
        """Seconds since the workload's start, in order, without end."""


@dataclass(frozen=True, slots=True)
class AtOnce:
    """Everything is there at time 0: what a closed loop draws from, which sets the times itself."""

    def times(self, rng: Random) -> Iterator[float]:
        while True:
            yield 0.0


@dataclass(frozen=True, slots=True)
class Constant:
    """One every 1/rate seconds, the first at once. Kinder than any real traffic."""

    rate: float

    def __post_init__(self) -> None:
        _positive("rate", self.rate)

    def times(self, rng: Random) -> Iterator[float]:
        count = 0
        while True:
            yield count / self.rate  # not a sum: 1e6 roundings would add up
            count += 1


@dataclass(frozen=True, slots=True)
class Poisson:
    """Independent clients: exponential gaps."""

    rate: float

    def __post_init__(self) -> None:
        _positive("rate", self.rate)

    def times(self, rng: Random) -> Iterator[float]:
        now = 0.0
        while True:
            now += rng.expovariate(self.rate)
            yield now


@dataclass(frozen=True, slots=True)
class Gamma:
    """Gaps of a gamma distribution. `cv` is their coefficient of variation: 1 is Poisson, above 1 comes in bursts.

    vLLM's and SGLang's `--burstiness` b is the gamma's shape: cv = 1/√b.
    """

    rate: float
    cv: float

    def __post_init__(self) -> None:
        _positive("rate", self.rate)
        _positive("cv", self.cv)

    @classmethod
    def of_burstiness(cls, rate: float, burstiness: float) -> Gamma:
        _positive("burstiness", burstiness)
        return cls(rate, 1 / math.sqrt(burstiness))

    def times(self, rng: Random) -> Iterator[float]:
        shape = 1 / self.cv**2
        scale = 1 / (self.rate * shape)
        now = 0.0
        while True:
            now += rng.gammavariate(shape, scale)
            yield now


@dataclass(frozen=True, slots=True)
class Ramp:
    """Poisson whose rate goes in a straight line from `first` to `last` within `over_s` seconds, and stays there."""

    first: float
    last: float
    over_s: float

    def __post_init__(self) -> None:
        _positive("over_s", self.over_s)
        _positive("last rate", self.last)
        if not (math.isfinite(self.first) and self.first >= 0):
            raise UsageError(f"a ramp's first rate is 0 or more, not {self.first}")

    def times(self, rng: Random) -> Iterator[float]:
        # Unit-rate arrivals, carried through the inverse of the expected count up to a time.
        expected = 0.0
        while True:
            expected += rng.expovariate(1.0)
            yield self._when(expected)

    def _when(self, expected: float) -> float:
        whole = (self.first + self.last) / 2 * self.over_s
        if expected >= whole:
            return self.over_s + (expected - whole) / self.last
        slope = (self.last - self.first) / self.over_s
        # first × t + slope × t² / 2 = expected, in the form that also stands for slope 0
        return 2 * expected / (self.first + math.sqrt(self.first**2 + 2 * slope * expected))


def _positive(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise UsageError(f"{name} must be a number above 0, not {value}")
