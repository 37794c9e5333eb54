"""Which public names lead to a pool."""

from __future__ import annotations

from kilocard.spec.model import ClusterSpec


def served_names(spec: ClusterSpec, pool: str) -> tuple[str, ...]:
    """Public names of the models that route to the pool."""
    return tuple(model.name for model in spec.models.values() if pool in model.pools)
