"""What one gateway tells whoever scales (GET /signals), and how the readings of several become one observation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf

from kilocard.core.signals import ClusterSignals, Phase, PoolSignals, ReplicaSignals, added


@dataclass(frozen=True, slots=True)
class GatewayReading:
    """`replicas` are those that the gateway knows: one that still starts, or that has stopped, is not among them."""

    pools: tuple[PoolSignals, ...] = ()
    replicas: tuple[ReplicaSignals, ...] = ()

    def older(self, seconds: float) -> GatewayReading:
        """The same, read so much earlier."""
        return GatewayReading(
            tuple(replace(pool, age_s=pool.age_s + seconds) for pool in self.pools),
            tuple(
                replica if replica.age_s is None else replace(replica, age_s=replica.age_s + seconds)
                for replica in self.replicas
            ),
        )


def together(readings: Sequence[GatewayReading]) -> GatewayReading:
    """Several gateways, or several workers of one, as if they were one."""
    if len(readings) == 1:
        return readings[0]
    pools: dict[str, list[PoolSignals]] = {}
    replicas: dict[str, list[ReplicaSignals]] = {}
    for reading in readings:
        for pool in reading.pools:
            pools.setdefault(pool.pool, []).append(pool)
        for replica in reading.replicas:
            replicas.setdefault(replica.id, []).append(replica)
    sums = (added(name, each) for name, each in sorted(pools.items()))
    return GatewayReading(
        tuple(pool for pool in sums if pool is not None),
        tuple(_seen_by_all(views) for _, views in sorted(replicas.items())),
    )


def _seen_by_all(views: Sequence[ReplicaSignals]) -> ReplicaSignals:
    """Gauges of the freshest reading; requests summed. It serves if anybody says so, and drains as soon as one does."""
    freshest = min(views, key=lambda view: inf if view.age_s is None else view.age_s)
    phases = {view.phase for view in views}
    phase = next((phase for phase in (Phase.DRAINING, Phase.READY) if phase in phases), freshest.phase)
    return replace(
        freshest,
        phase=phase,
        since_s=max(view.since_s for view in views),
        in_flight=sum(view.in_flight for view in views),
        in_flight_tokens=sum(view.in_flight_tokens for view in views),
    )


def observed(now: float, gateways: GatewayReading, listed: Iterable[ReplicaSignals]) -> ClusterSignals:
    """One observation: the replicas that the backend lists, with what gateways know of those.

    A replica that is in no list of the backend does not exist, however fresh a gateway's memory of it is. One that the
    backend calls ready and gateways have ejected is failing.
    """
    known = {replica.id: replica for replica in gateways.replicas}
    return ClusterSignals(
        now,
        {pool.pool: pool for pool in gateways.pools},
        tuple(_joined(replica, known.get(replica.id)) for replica in listed),
    )


def _joined(listed: ReplicaSignals, seen: ReplicaSignals | None) -> ReplicaSignals:
    if seen is None:
        return listed
    failing = listed.phase is Phase.READY and seen.phase is Phase.FAILING
    return replace(
        listed,
        phase=Phase.FAILING if failing else listed.phase,
        running=seen.running,
        waiting=seen.waiting,
        kv_usage=seen.kv_usage,
        age_s=seen.age_s,
        in_flight=seen.in_flight,
        in_flight_tokens=seen.in_flight_tokens,
        cached_share=seen.cached_share,
    )
