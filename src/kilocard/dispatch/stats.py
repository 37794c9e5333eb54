"""Counts of what the dispatcher did. Plain numbers that only grow; the gateway exports them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field


def _counts() -> defaultdict[str, int]:
    return defaultdict(int)


def _two() -> list[int]:
    return [0, 0]


def _pairs() -> defaultdict[str, list[int]]:
    return defaultdict(_two)


@dataclass(slots=True)
class Stats:
    #: Sends by the decision's reason
    decisions: defaultdict[str, int] = field(default_factory=_counts)
    #: Holds by reason
    holds: defaultdict[str, int] = field(default_factory=_counts)
    #: Refuses by error code
    refusals: defaultdict[str, int] = field(default_factory=_counts)
    #: second and later attempts, by the fault that made them necessary
    retries: defaultdict[str, int] = field(default_factory=_counts)
    #: failed attempts by fault
    faults: defaultdict[str, int] = field(default_factory=_counts)
    #: replicas taken out, by cause; "floor" counts those that had to stay in
    ejections: defaultdict[str, int] = field(default_factory=_counts)
    #: endings that were not refusals: finished, abandoned
    ends: defaultdict[str, int] = field(default_factory=_counts)
    #: replicas that died with requests of ours on them, by pool
    deaths: defaultdict[str, int] = field(default_factory=_counts)
    #: bodies that were found to kill replicas
    convictions: int = 0
    #: second attempts by model and what came of them: sent; then won, lost, failed or took_over
    hedges: defaultdict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))
    #: by model, of prompts whose beginnings were looked at: tokens, and how many of them were expected to be cached
    prefixes: defaultdict[str, list[int]] = field(default_factory=_pairs)
    overheats: int = 0
    probes: int = 0
    recoveries: int = 0
    scrapes_failed: int = 0
    #: events for requests or replicas that are not known (any more)
    late_events: int = 0
