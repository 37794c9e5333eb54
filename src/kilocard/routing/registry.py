"""Policies by name. An explicit table: nothing registers itself by being imported."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from kilocard.core.errors import SpecError
from kilocard.routing.adaptive import Adaptive
from kilocard.routing.base import Policy, PolicyFactory
from kilocard.routing.least_connections import LeastConnections
from kilocard.routing.prefix_affinity import PrefixAffinity
from kilocard.routing.queue_depth import QueueDepth
from kilocard.routing.round_robin import RoundRobin

POLICIES: Mapping[str, PolicyFactory] = {
    "round_robin": RoundRobin,
    "least_connections": LeastConnections,
    "queue_depth": QueueDepth,
    "adaptive": Adaptive,
    "prefix_affinity": PrefixAffinity,
}


def make_policy(name: str, rng: Random) -> Policy:
    """A fresh policy. Raises SpecError for a name that is not in the table."""
    factory = POLICIES.get(name)
    if factory is None:
        raise SpecError(f"policy: there is no {name!r}; take one of {', '.join(sorted(POLICIES))}")
    return factory(rng)
