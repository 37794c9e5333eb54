"""GET /signals: what this gateway knows for whoever decides how many replicas there are. Made when somebody asks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kilocard.core.reading import GatewayReading
from kilocard.dispatch.signals import pool_signals, replica_signals

if TYPE_CHECKING:
    from kilocard.gateway.plane import Plane


def signals(plane: Plane) -> GatewayReading:
    """O(replicas + held requests)."""
    now = plane.clock()
    fleet = plane.dispatcher.fleet
    pools = pool_signals(fleet, now, plane.id_prefix.decode())
    return GatewayReading(tuple(pools.values()), tuple(replica_signals(fleet, now)))
