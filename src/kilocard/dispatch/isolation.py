"""Whose pools are whose: which pools of a model each tenant's requests may go to.

A pool without owners is everybody's. A tenant that owns a pool of a model uses only its own ones for that model, even
if their weight is 0: its data stays inside.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kilocard.dispatch.config import PoolFacts
from kilocard.spec.model import ModelSpec


class Party(NamedTuple):
    """Tenants with the same pools of one model."""

    #: empty: everybody who is in no other party
    tenants: frozenset[str]
    #: in the order of the file, those of weight 0 too
    pools: tuple[str, ...]


def parties(model: ModelSpec, facts: Mapping[str, PoolFacts]) -> list[Party]:
    """Everybody's party first, whether it has pools or not."""
    owners = {pool: frozenset(facts[pool].tenants) if pool in facts else frozenset() for pool in model.pools}
    public = tuple(pool for pool in model.pools if not owners[pool])
    by_pools: dict[tuple[str, ...], set[str]] = {}
    for tenant in sorted(frozenset().union(*owners.values())):
        own = tuple(pool for pool in model.pools if tenant in owners[pool])
        by_pools.setdefault(own, set()).add(tenant)
    everybody = Party(frozenset(), public)
    return [everybody, *(Party(frozenset(tenants), pools) for pools, tenants in by_pools.items())]
