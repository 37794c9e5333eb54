"""What gateways and backends know of the pools and replicas when somebody decides how many there should be.

Counters count from the start of the process that keeps them, so that readers take differences and the readings of
several gateways can be added. Gauges are of the moment. None means unknown, never 0. Seconds, requests, tokens.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf

#: upper bounds of the buckets of every histogram here; one more bucket holds what is longer
BOUNDS_S = (
    0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 120.0, 300.0,
)  # fmt: skip
BUCKETS = len(BOUNDS_S) + 1
#: counts by bucket (not summed up over the buckets)
Histogram = tuple[int, ...]
EMPTY: Histogram = (0,) * BUCKETS


def bucket(seconds: float) -> int:
    """The place of this duration in a Histogram."""
    return bisect_left(BOUNDS_S, seconds)


def quantile(counts: Sequence[float], share: float) -> float | None:
    """An upper bound of the quantile: the bound of the bucket that holds it, infinity for the last. None: no counts."""
    total = sum(counts)
    if total <= 0:
        return None
    held = 0.0
    for place, count in enumerate(counts):
        held += count
        if held >= share * total:
            return BOUNDS_S[place] if place < len(BOUNDS_S) else inf
    return inf


class Phase(StrEnum):
    """Where a replica is in its life, as whoever decides about numbers sees it."""

    PENDING = "pending"  # wanted, and waits for a GPU or a node
    STARTING = "starting"  # its process is on its way
    LOADING = "loading"  # it shows signs of life but can't serve yet
    READY = "ready"
    FAILING = "failing"  # ejected, restarting after a crash, or in a crash loop
    DRAINING = "draining"  # it leaves: no new requests, running ones finish


#: phases of a replica that is on its way to serve
COMING = frozenset({Phase.PENDING, Phase.STARTING, Phase.LOADING})


@dataclass(frozen=True, slots=True)
class PoolSignals:
    """What one gateway, or several added up, know of one pool."""

    pool: str
    #: names of the gateway processes that this adds up, in order, with something that differs after a restart. Two
    #: readings of other processes have no difference
    sources: tuple[str, ...] = ()
    #: requests that came for the pool, and tokens of their prompts. A model's requests that have no pool yet count by
    #: the pools' weights
    arrived: float = 0.0
    prompt_tokens: float = 0.0
    #: requests whose answers ended, and tokens of these answers
    finished: float = 0.0
    output_tokens: float = 0.0
    #: requests that were turned away because there was no place for them
    refused: float = 0.0
    #: requests that have waited in the gateway for a replica, first tokens that have come
    hold: Histogram = EMPTY
    first_token: Histogram = EMPTY
    #: gauges: requests that wait in the gateway now, since when the oldest does, tokens expected of their prompts and
    #: answers, and the same of requests that are at a replica
    held: float = 0.0
    held_oldest_s: float = 0.0
    held_tokens: float = 0.0
    in_flight: float = 0.0
    in_flight_tokens: float = 0.0
    #: how long ago all this was true
    age_s: float = 0.0


def added(pool: str, readings: Iterable[PoolSignals]) -> PoolSignals | None:
    """What several gateways know together; as old as the oldest reading. None: there is no reading."""
    all = sorted(readings, key=lambda each: each.sources)
    if not all:
        return None
    return PoolSignals(
        pool,
        sources=tuple(source for each in all for source in each.sources),
        arrived=sum(each.arrived for each in all),
        prompt_tokens=sum(each.prompt_tokens for each in all),
        finished=sum(each.finished for each in all),
        output_tokens=sum(each.output_tokens for each in all),
        refused=sum(each.refused for each in all),
        hold=_sum(each.hold for each in all),
        first_token=_sum(each.first_token for each in all),
        held=sum(each.held for each in all),
        held_oldest_s=max(each.held_oldest_s for each in all),
        held_tokens=sum(each.held_tokens for each in all),
        in_flight=sum(each.in_flight for each in all),
        in_flight_tokens=sum(each.in_flight_tokens for each in all),
        age_s=max(each.age_s for each in all),
    )


def _sum(histograms: Iterable[Histogram]) -> Histogram:
    return tuple(map(sum, zip(*histograms, strict=True)))


@dataclass(frozen=True, slots=True)
class ReplicaSignals:
    """One replica that the backend lists: who it is, where in its life, and what its gauges said last."""

    id: str
    pool: str
    phase: Phase
    #: how long it has been in this phase
    since_s: float = 0.0
    #: what it runs (engine version, image, hash of its arguments); "" unknown
    version: str = ""
    #: how long ago it was created; None: unknown
    born_s: float | None = None
    #: the engine's gauges: requests, requests, share 0-1
    running: float | None = None
    waiting: float | None = None
    kv_usage: float | None = None
    #: how old they are; None: never read
    age_s: float | None = None
    #: our requests there now, and the tokens that are expected of them
    in_flight: int = 0
    in_flight_tokens: float = 0.0
    #: share of the prompt tokens asked of its prefix cache that it found there lately; None: unknown
    cached_share: float | None = None


@dataclass(frozen=True, slots=True)
class ClusterSignals:
    """One observation of everything."""

    now: float
    #: by name; a pool that no gateway told of is missing
    pools: dict[str, PoolSignals]
    replicas: tuple[ReplicaSignals, ...]

    def of(self, pool: str) -> tuple[PoolSignals | None, tuple[ReplicaSignals, ...]]:
        """What there is of one pool."""
        return self.pools.get(pool), tuple(replica for replica in self.replicas if replica.pool == pool)
