"""Which replica goes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kilocard.core.signals import Phase, ReplicaSignals


class Leaver(NamedTuple):
    """A replica that is to be drained, and why this one."""

    replica: str
    reason: str


#: what costs nothing to lose goes first: nobody is served by a replica that does not serve
_ORDER = (Phase.PENDING, Phase.FAILING, Phase.STARTING, Phase.LOADING, Phase.READY)
_WHY = {
    Phase.PENDING: "it waits for a GPU and serves nobody",
    Phase.FAILING: "it fails and serves nobody",
    Phase.STARTING: "it has only begun to start",
    Phase.LOADING: "it still loads and serves nobody",
}


def leaving(replicas: Sequence[ReplicaSignals], count: int, version: str = "") -> list[Leaver]:
    """The `count` replicas to drain, first one first; fewer if there are fewer. Those that leave already
    are passed over.

    Among those that serve: least work first, then another version than `version` (the pool's present one), then the
    coldest cache, then the youngest.
    """
    there = sorted(
        (each for each in replicas if each.phase is not Phase.DRAINING), key=lambda each: _rank(each, version)
    )
    return [Leaver(each.id, _why(each)) for each in there[: max(0, count)]]


def _rank(replica: ReplicaSignals, version: str) -> tuple[int, float, bool, float, float, str]:
    return (
        _ORDER.index(replica.phase),
        work(replica),
        replica.version == version,
        replica.cached_share or 0.0,
        -replica.since_s if replica.phase is Phase.FAILING else replica.since_s,
        replica.id,
    )


def work(replica: ReplicaSignals) -> float:
    """Tokens still expected there. Requests of others, which only its gauges tell of, count as one each at least."""
    others = max(0.0, (replica.running or 0.0) + (replica.waiting or 0.0) - replica.in_flight)
    return max(replica.in_flight_tokens, float(replica.in_flight)) + others


def _why(replica: ReplicaSignals) -> str:
    return _WHY.get(replica.phase, f"it has the least work: {replica.in_flight} requests")
