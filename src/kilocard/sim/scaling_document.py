"""What became of the number of replicas: a part of the report."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from kilocard.sim.cluster import Cluster
from kilocard.sim.server import Server


def scaling_document(cluster: Cluster, servers: Sequence[Server]) -> dict[str, Any] | None:
    """None where no pool scales. `servers`: all that there ever were. Replicas that drain are in `mean` only."""
    pools = [pool for pool in cluster.scenario.pools if pool.scaler is not None]
    if not pools:
        return None
    events = cluster.autoscaling.events
    found: dict[str, Any] = {}
    for pool in pools:
        mine = [event for event in events if event.pool == pool.name]
        numbers = [pool.replicas, *(event.wanted for event in mine)]
        grew = [event.wanted > event.have for event in mine]
        held_s = sum(server.held_s for server in servers if server.pool is pool)
        found[pool.name] = {
            "least": min(numbers),
            "most": max(numbers),
            "mean": held_s / cluster.results.ended_s if cluster.results.ended_s else None,
            "grew": sum(grew),
            "shrank": len(grew) - sum(grew),
            # how often the direction changed
            "turns": sum(a != b for a, b in pairwise(grew)),
        }
    return {"pools": found, "events": [event.to_mapping() for event in events]}
