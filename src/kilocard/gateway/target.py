"""What it takes to send a request to one replica."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kilocard.core.replica import Endpoint
from kilocard.engines.base import MetricsPage
from kilocard.engines.registry import engine as engine_named
from kilocard.gateway.outbox import Outbox
from kilocard.gateway.replica_connections import ReplicaConnections
from kilocard.spec.model import ClusterSpec


@dataclass(slots=True)
class Target:
    """One object for as long as the replica has this address; `aim` when the cluster file is another one."""

    endpoint: Endpoint
    connections: ReplicaConnections
    #: public model name → the engine's name for it, where they differ
    model_names: Mapping[str, str]
    stream_usage: bool
    readiness_path: str
    liveness_path: str
    metrics_pages: tuple[MetricsPage, ...]
    #: "Model" is "model" to its engine
    keys_in_any_case: bool = False
    #: what to ask for to see whether it makes tokens
    probe_model: str = ""

    @classmethod
    def at(cls, endpoint: Endpoint, spec: ClusterSpec, clock: Callable[[], float], outbox: Outbox) -> Target:
        """`endpoint.pool` is one of the spec's."""
        target = cls(endpoint, ReplicaConnections(endpoint.url, clock, outbox), {}, False, "", "", ())
        target.aim(spec)
        return target

    def aim(self, spec: ClusterSpec) -> None:
        """What the cluster file says of its pool now; nothing where the pool is no more in it."""
        pool = spec.pools.get(self.endpoint.pool)
        if pool is None:
            return
        engine = engine_named(pool.engine)
        served = {
            model.name: engine.upstream_model(pool, model.name)
            for model in spec.models.values()
            if pool.name in model.pools
        }
        self.model_names = {public: upstream for public, upstream in served.items() if public != upstream}
        self.probe_model = next(iter(served.values()), "")
        self.stream_usage = engine.capabilities.stream_usage
        self.keys_in_any_case = engine.capabilities.keys_in_any_case
        self.readiness_path = engine.readiness_path(pool)
        self.liveness_path = engine.liveness_path(pool)
        self.metrics_pages = engine.metrics_pages(pool)
