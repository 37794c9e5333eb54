"""Was somebody starved by a crowd? Judged from how long requests waited in the gateway. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from benchmarks.soak.books import Row

#: from and to, in Unix seconds
Span = tuple[float, float]

#: waits of each that a comparison needs
ENOUGH = 30
#: seconds that are chance
CHANCE = 0.25


class Waits(NamedTuple):
    """Of the requests of one tenant that came while a crowd was there, in seconds."""

    requests: int
    median: float
    p90: float


def waits(rows: Iterable[Row], crowds: Iterable[Span]) -> dict[str, Waits]:
    """By tenant. Requests that no replica was found for count with their wait."""
    return _summed(held for found in _by_crowd(rows, crowds) for held in found)


def judge_waits(rows: Iterable[Row], crowds: Iterable[Span], flood: str, weights: Mapping[str, float]) -> Iterator[str]:
    """No tenant of `weights` waits longer than the tenant that floods. `weights`: inf for a class above the flood's.

    Only for crowds that the tenant is no crowd in itself: per unit of weight it asked no more often than the flood. Who
    asks for more than its share, as all do where most replicas are ill, waits for what is beyond it.
    """
    together = [(found, Counter(tenant for tenant, _ in found)) for found in _by_crowd(rows, crowds)]
    for tenant, weight in weights.items():
        smaller = [found for found, asked in together if asked[tenant] <= asked[flood] * weight]
        both = _summed(held for found in smaller for held in found)
        mine, flooding = both.get(tenant), both.get(flood)
        if mine is None or flooding is None or min(mine.requests, flooding.requests) < ENOUGH:
            continue
        if mine.median > flooding.median + CHANCE or mine.p90 > flooding.p90 + CHANCE:
            yield (
                f"{tenant} waited {mine.median:.2f} s (median) and {mine.p90:.2f} s (p90) while {flood}, which made "
                f"the crowd, waited {flooding.median:.2f} s and {flooding.p90:.2f} s"
            )


#: a tenant, and how long its request was held
Held = tuple[str, float]


def _by_crowd(rows: Iterable[Row], crowds: Iterable[Span]) -> list[list[Held]]:
    stayed = [row for row in rows if row.outcome != "client_gone"]
    return [[(row.tenant, row.held) for row in stayed if since <= row.started <= until] for since, until in crowds]


def _summed(held: Iterable[Held]) -> dict[str, Waits]:
    found: dict[str, list[float]] = {}
    for tenant, seconds in held:
        found.setdefault(tenant, []).append(seconds)
    return {
        tenant: Waits(len(all_of_it), all_of_it[len(all_of_it) // 2], all_of_it[len(all_of_it) * 9 // 10])
        for tenant, all_of_it in ((tenant, sorted(seconds)) for tenant, seconds in found.items())
    }
