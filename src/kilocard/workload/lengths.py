"""How long inputs and outputs are, in tokens."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from statistics import NormalDist
from typing import Protocol

from kilocard.core.errors import UsageError

#: how many standard deviations the 99th percentile lies above the middle of a normal distribution
Z99 = NormalDist().inv_cdf(0.99)


class Length(Protocol):
    @property
    def mean(self) -> float: ...

    def draw(self, rng: Random) -> int:
        """Tokens, 1 or more."""


@dataclass(frozen=True, slots=True)
class Fixed:
    tokens: int

    def __post_init__(self) -> None:
        _at_least_one("length", self.tokens)

    @property
    def mean(self) -> float:
        return float(self.tokens)

    def draw(self, rng: Random) -> int:
        return self.tokens


@dataclass(frozen=True, slots=True)
class Uniform:
    """Each whole number from `low` to `high`, both included, equally often."""

    low: int
    high: int

    def __post_init__(self) -> None:
        _at_least_one("shortest length", self.low)
        if self.high < self.low:
            raise UsageError(f"lengths from {self.low} to {self.high}: the second must not be less")

    @property
    def mean(self) -> float:
        return (self.low + self.high) / 2

    def draw(self, rng: Random) -> int:
        return rng.randint(self.low, self.high)


@dataclass(frozen=True, slots=True)
class Lognormal:
    """What chat traffic looks like: many short, few very long; given by its mean and its 99th percentile.

    Lengths above `high` (None: no limit) become `high`, so a limit near p99 makes the mean a little smaller.
    """

    mean_tokens: float
    p99: float
    high: int | None = None

    def __post_init__(self) -> None:
        _at_least_one("mean length", self.mean_tokens)
        # No lognormal has p99 / mean above exp(z²/2) = 14.97.
        most = math.exp(Z99**2 / 2)
        if not self.mean_tokens <= self.p99 <= most * self.mean_tokens:
            raise UsageError(
                f"no lognormal has mean {self.mean_tokens:g} and 99th percentile {self.p99:g}: the second must be "
                f"1 to {most:.1f} times the first; use a trace, or a mix of two kinds of request"
            )
        if self.high is not None and self.high < self.mean_tokens:
            raise UsageError(f"the longest length {self.high} is below the mean {self.mean_tokens:g}")

    @property
    def mean(self) -> float:
        return self.mean_tokens

    def draw(self, rng: Random) -> int:
        # mean = exp(mu + s²/2) and p99 = exp(mu + z·s): the smaller root, the one whose spread grows with p99 / mean
        spread = Z99 - math.sqrt(max(0.0, Z99**2 - 2 * math.log(self.p99 / self.mean_tokens)))
        middle = math.log(self.mean_tokens) - spread**2 / 2
        tokens = max(1, round(math.exp(rng.gauss(middle, spread))))
        return tokens if self.high is None else min(tokens, self.high)


@dataclass(frozen=True, slots=True)
class Empirical:
    """Lengths that were seen, each drawn equally often."""

    seen: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.seen:
            raise UsageError("no lengths were seen, so none can be drawn")
        _at_least_one("shortest length", min(self.seen))

    @classmethod
    def of(cls, lengths: Sequence[int]) -> Empirical:
        return cls(tuple(lengths))

    @property
    def mean(self) -> float:
        return sum(self.seen) / len(self.seen)

    def draw(self, rng: Random) -> int:
        return rng.choice(self.seen)


_RANGE = re.compile(r"(\d+)\s*(?:-|\.\.)\s*(\d+)")
_FORMS = "a number (512), a range (256-1024), or mean=800,p99=4000 and perhaps max=8000"


def read_length(text: str) -> Length:
    """`512`, `256-1024` or `mean=800,p99=4000[,max=8000]`, as on a command line. UsageError names the forms."""
    text = text.strip()
    if text.isdecimal():
        return Fixed(int(text))
    if both := _RANGE.fullmatch(text):
        return Uniform(int(both[1]), int(both[2]))
    if "=" in text:
        return _read_lognormal(text)
    raise UsageError(f"length {text!r}: write {_FORMS}")


def _read_lognormal(text: str) -> Length:
    pairs = (part.partition("=") for part in text.split(","))
    given = {key.strip(): value.strip() for key, _, value in pairs}
    if not {"mean", "p99"} <= given.keys() <= {"mean", "p99", "max"}:
        raise UsageError(f"length {text!r}: write {_FORMS}")
    try:
        high = int(given["max"]) if "max" in given else None
        return Lognormal(float(given["mean"]), float(given["p99"]), high)
    except ValueError:
        raise UsageError(f"length {text!r}: not a number; write {_FORMS}") from None


def _at_least_one(what: str, tokens: float) -> None:
    if not (math.isfinite(tokens) and tokens >= 1):
        raise UsageError(f"{what} {tokens}: 1 token or more")
