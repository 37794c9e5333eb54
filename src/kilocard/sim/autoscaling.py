"""Pools that grow and shrink on virtual time: the controller's loop, with the production Scaler or another one.

Once a second it observes what the controller would (each gateway's own counts, gauges as old as the gateway knows them,
replicas in the phases that a backend lists), decides, and does it. A removed replica drains at the gateways first; what
still runs there at the end of the grace is cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from kilocard.core.reading import GatewayReading, observed, together
from kilocard.core.signals import Phase, PoolSignals, ReplicaSignals
from kilocard.dispatch.signals import pool_signals, replica_signals
from kilocard.scaling.decision import ScalingDecision
from kilocard.scaling.leaving import leaving
from kilocard.scaling.limits import Limits, LocalTime

if TYPE_CHECKING:
    from kilocard.sim.cluster import Cluster
    from kilocard.sim.server import Server

#: seconds between two looks, as the controller's
PERIOD_S = 1.0
MINUTE_S, DAY_MINUTES = 60.0, 1440


class Decides(Protocol):
    """What decides a pool's number: kilocard's Scaler, or a model of somebody else's."""

    def decide(
        self, now: float, signals: PoolSignals | None, replicas: Sequence[ReplicaSignals], limits: Limits
    ) -> ScalingDecision:
        """Once every PERIOD_S."""


@dataclass(frozen=True, slots=True)
class ScaleEvent:
    """A pool's number was changed, and why."""

    at_s: float
    pool: str
    have: int
    wanted: int
    reason: str
    sentence: str

    def to_mapping(self) -> dict[str, Any]:
        """As the report has it."""
        return {
            "at_s": self.at_s, "pool": self.pool, "have": self.have, "wanted": self.wanted, "reason": self.reason,
            "sentence": self.sentence,
        }  # fmt: skip


class Autoscaling:
    """Of all pools that have a `scaler`. The simulation begins on a Monday at midnight, in every time zone."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._scalers = {
            pool.name: pool.scaler() for pool in cluster.scenario.pools if pool.scaler is not None
        }  # fmt: skip
        self._grace = {pool.name: pool.grace_s for pool in cluster.scenario.pools}
        self.events: list[ScaleEvent] = []

    def begin(self) -> None:
        """Nothing is scheduled where no pool scales."""
        if self._scalers:
            self._cluster.kernel.at(PERIOD_S, self._look)

    def _look(self, now: float, _: None = None) -> None:
        cluster = self._cluster
        readings = [
            GatewayReading(
                tuple(pool_signals(gateway.dispatcher.fleet, now, f"gateway {number}").values()),
                tuple(replica_signals(gateway.dispatcher.fleet, now)),
            )
            for number, gateway in enumerate(cluster.gateways)
        ]
        seen = observed(now, together(readings), [_listed(now, server) for server in cluster.servers.values()])
        for name, scaler in self._scalers.items():
            signals, replicas = seen.of(name)
            decision = scaler.decide(now, signals, replicas, Limits(local=_Everywhere(now)))
            if decision.wanted != decision.have:
                self._do(now, decision, replicas)
        cluster.kernel.at(now + PERIOD_S, self._look)

    def _do(self, now: float, decision: ScalingDecision, replicas: Sequence[ReplicaSignals]) -> None:
        cluster = self._cluster
        self.events.append(
            ScaleEvent(now, decision.pool, decision.have, decision.wanted, decision.reason, decision.sentence)
        )
        for _ in range(decision.wanted - decision.have):
            cluster.add(now, decision.pool)
        for leaver in leaving(replicas, decision.have - decision.wanted):
            server = cluster.servers[leaver.replica]
            cluster.drain(now, server)
            cluster.kernel.at(now + self._grace[decision.pool], cluster.grace_over, server)


def _listed(now: float, server: Server) -> ReplicaSignals:
    """As a backend lists it. One that is down after a crash starts again."""
    if server.draining:
        phase = Phase.DRAINING
    elif server.up:
        phase = Phase.READY
    else:
        phase = Phase.LOADING if not server.crashed else Phase.FAILING
    since = server.up_since if server.up else server.born
    return ReplicaSignals(server.id, server.pool.name, phase, since_s=now - since, born_s=now - server.born)


class _Everywhere(dict[str, LocalTime]):
    """The same time in each zone that somebody asks for."""

    def __init__(self, now: float) -> None:
        super().__init__()
        days, minute = divmod(int(now // MINUTE_S), DAY_MINUTES)
        self._time = LocalTime(days % 7, minute)

    def __contains__(self, zone: object) -> bool:
        return True

    def __missing__(self, zone: str) -> LocalTime:
        return self._time
