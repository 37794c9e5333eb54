"""What one point of a sweep offers to the server, and how people write it: `1,2,4,8` or `0.5,1,2`."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kilocard.core.errors import UsageError

#: more at once than one process can drive honestly (docs/bench-client.md)
MOST_CONCURRENCY = 10_000


@dataclass(frozen=True, slots=True)
class Load:
    """Exactly one of the two is set; neither: the arrivals of a trace."""

    #: closed loop: so many requests are in flight all the time
    concurrency: int | None = None
    #: open loop: so many requests arrive a second, whether or not earlier ones are done
    rate_per_s: float | None = None

    def __str__(self) -> str:
        if self.concurrency is not None:
            return f"{self.concurrency} at once"
        return "the trace" if self.rate_per_s is None else f"{self.rate_per_s:g} requests/s"


def parse_sweep(text: str) -> list[Load]:
    """`1,2,4,8`: points of a closed loop, in this order. Raises UsageError."""
    loads = []
    for part in _parts(text, "--sweep", "1,2,4,8,16"):
        if not part.isascii() or not part.isdecimal() or not 1 <= int(part) <= MOST_CONCURRENCY:
            raise UsageError(f"--sweep {text}: {part!r} is not a whole number from 1 to {MOST_CONCURRENCY}")
        loads.append(Load(concurrency=int(part)))
    return loads


def parse_rates(text: str) -> list[Load]:
    """`0.5,1,2`: points of an open loop, requests per second. Raises UsageError."""
    loads = []
    for part in _parts(text, "--rate", "2 or 0.5,1,2,4"):
        try:
            rate = float(part)
        except ValueError:
            rate = math.nan
        if not 0 < rate <= 100_000:
            raise UsageError(f"--rate {text}: {part!r} is not a number of requests per second above 0")
        loads.append(Load(rate_per_s=rate))
    return loads


def _parts(text: str, option: str, example: str) -> list[str]:
    parts = [part.strip() for part in text.split(",")]
    if "" in parts:
        raise UsageError(f"{option} {text!r}: write numbers with commas between them, like {example}")
    if len(set(parts)) < len(parts):
        raise UsageError(f"{option} {text}: the same number twice; --repeats N measures each point N times")
    return parts
