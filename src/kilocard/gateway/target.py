"""What it takes to send a request to one replica."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kilocard.core.replica import Endpoint
from kilocard.engines.base import Engine
from kilocard.gateway.replica_connections import ReplicaConnections
from kilocard.spec.model import ModelSpec, PoolSpec


@dataclass(slots=True)
class Target:
    endpoint: Endpoint
    connections: ReplicaConnections
    #: public model name → the engine's name for it, where they differ
    model_names: Mapping[str, str]
    stream_usage: bool
    readiness_path: str

    @classmethod
    def of(
        cls,
        endpoint: Endpoint,
        engine: Engine,
        pool: PoolSpec,
        models: Mapping[str, ModelSpec],
        clock: Callable[[], float],
    ) -> Target:
        """`pool` is the endpoint's; `engine` its engine; `models` are all of the cluster file."""
        names = {}
        for model in models.values():
            if pool.name in model.pools:
                upstream = engine.upstream_model(pool, model.name)
                if upstream != model.name:
                    names[model.name] = upstream
        return cls(
            endpoint,
            ReplicaConnections(endpoint.url, clock),
            names,
            engine.capabilities.stream_usage,
            engine.readiness_path(pool),
        )
