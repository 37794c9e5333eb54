"""Whose pools are whose: which pools of a model each tenant's requests may go to.

A pool without owners is everybody's. A tenant that owns a pool of a model uses only its own ones for that model, even
if their weight is 0: its data stays inside.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from kilocard.core.errors import KilocardError
from kilocard.dispatch import refusals
from kilocard.dispatch.config import PoolFacts
from kilocard.spec.model import ModelSpec

if TYPE_CHECKING:
    from kilocard.dispatch.fleet import Fleet
    from kilocard.dispatch.topology import Model


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


def model_for(fleet: Fleet, name: str, tenant: str) -> Model | None:
    """The model as this tenant may use it; None: there is no such model."""
    return fleet.private.get((name, tenant)) or fleet.models.get(name)


def may_use(fleet: Fleet, name: str, tenant: str) -> bool:
    """Whether any pool of this model is the tenant's or everybody's."""
    model = model_for(fleet, name, tenant)
    return model is not None and not model.closed


def no_way(fleet: Fleet, name: str, tenant: str) -> KilocardError:
    """Why a tenant's request for this model can't go anywhere."""
    model = model_for(fleet, name, tenant)
    if model is None:
        return refusals.unknown_model(name, [known for known in fleet.models if may_use(fleet, known, tenant)])
    return refusals.closed() if model.closed else refusals.without_weight(name)
