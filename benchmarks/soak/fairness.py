"""Was somebody starved by a crowd? Judged from how long requests waited in the gateway. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from benchmarks.soak.books import Row

#: waits of each that a comparison needs
ENOUGH = 30
#: seconds that are chance
CHANCE = 0.25


class Waits(NamedTuple):
    """Of the requests of one tenant that came while a crowd was there, in seconds."""

    requests: int
    median: float
    p90: float


def waits(rows: Iterable[Row], crowds: Iterable[tuple[float, float]]) -> dict[str, Waits]:
    """By tenant. `crowds`: (from, to) in Unix seconds. Requests that no replica was found for count with their wait."""
    spans = list(crowds)
    found: dict[str, list[float]] = {}
    for row in rows:
        if row.outcome != "client_gone" and any(since <= row.started <= until for since, until in spans):
            found.setdefault(row.tenant, []).append(row.held)
    return {
        tenant: Waits(len(held), held[len(held) // 2], held[len(held) * 9 // 10])
        for tenant, held in ((tenant, sorted(held)) for tenant, held in found.items())
    }


def judge_waits(found: Mapping[str, Waits], flood: str, others: Iterable[str]) -> list[str]:
    """Of one class and with no less weight, nobody waits longer than the tenant that floods."""
    flooding = found.get(flood)
    if flooding is None or flooding.requests < ENOUGH:
        return []
    return [
        f"{tenant} waited {mine.median:.2f} s (median) and {mine.p90:.2f} s (p90) while {flood}, which made the crowd, "
        f"waited {flooding.median:.2f} s and {flooding.p90:.2f} s"
        for tenant in others
        if (mine := found.get(tenant)) is not None
        and mine.requests >= ENOUGH
        and (mine.median > flooding.median + CHANCE or mine.p90 > flooding.p90 + CHANCE)
    ]
