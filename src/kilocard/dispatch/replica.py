"""One replica as the dispatcher sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kilocard.dispatch.health import Health
from kilocard.routing.load import UNBOUNDED, ReplicaLoad

if TYPE_CHECKING:
    from kilocard.dispatch.topology import Pool


class Replica(ReplicaLoad):
    """Load, health, and whether it may take a request. An object is one life: a replica that comes back is new."""

    __slots__ = (
        "cool", "draining", "gone", "health", "hot", "limit", "listed", "open", "pool", "ramp_from", "share", "trip",
        "up_at",
    )  # fmt: skip

    def __init__(self, id: str, pool: Pool, now: float, interval: float) -> None:
        super().__init__(id, pool.facts.max_running, interval)
        self.pool = pool
        self.health = Health(now)
        self.up_at = now
        self.draining = False
        self.gone = False
        #: overheated; `trip` and `cool` are the estimated waiting at which that begins and ends
        self.hot = False
        self.trip = UNBOUNDED
        self.cool = 0.0
        #: when its slow start began; None: not in slow start
        self.ramp_from: float | None = None
        #: our part of the pool's max_in_flight; None: all of it
        self.share: int | None = 0 if pool.facts.shared and pool.facts.max_in_flight is not None else None
        #: most requests of ours that it may have now: the pool's bound and slow start
        self.limit = UNBOUNDED
        #: ready or half-open, not draining, not hot
        self.open = True
        #: in the policies: open and below its limit
        self.listed = False

    def __repr__(self) -> str:
        return f"<{self.id} {self.health.state.value} {self.in_flight} in flight, {self.waiting:.0f} waiting>"
