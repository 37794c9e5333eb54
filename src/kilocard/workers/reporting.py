"""What a worker has to say of its replicas: what has changed since it spoke last. Reads the fleet, changes nothing.

Read by a timer, about 50 times a second, rather than kept up to date: a request costs nothing here.
"""

from __future__ import annotations

from kilocard.dispatch.fleet import Fleet
from kilocard.dispatch.health import State
from kilocard.dispatch.replica import Replica
from kilocard.workers.loads import Row


class Reporter:
    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._told: dict[str, Row] = {}
        self._marks: dict[str, tuple[object, ...]] = {}
        self._ejected: set[str] = set()
        #: number of the last news that were read
        self.read = 0

    def changes(self) -> list[Row]:
        """Rows that differ from what was said before. O(replicas)."""
        told = self._told
        marks = self._marks
        replicas = self._fleet.replicas
        held = self._held()
        rows = []
        for id, replica in replicas.items():
            share = replica.share
            # what a row is made of; most replicas stay as they are, and are passed by in 0.2 µs
            mark = (
                replica.in_flight, replica.pending, replica.prefill, replica.decode, replica.peers, share,
                held and share is not None and held.get(replica.pool.name, 0),
            )  # fmt: skip
            if marks.get(id) != mark:
                marks[id] = mark
                row = _row(replica, held)
                before = told.get(id)
                if row != before and (before is not None or any(row[1:])):
                    told[id] = row
                    rows.append(row)
        if len(marks) > len(replicas):
            for id in [id for id in marks if id not in replicas]:
                del marks[id]
                if told.pop(id, None) is not None:
                    rows.append(Row(id))
        return rows

    def ejected(self) -> list[tuple[str, str]]:
        """Replicas that this worker itself has ejected since the last call, and why."""
        out = []
        now = set()
        for id, replica in self._fleet.replicas.items():
            if replica.health.state is State.EJECTED:
                now.add(id)
                if id not in self._ejected and not replica.health.hearsay:
                    out.append((id, replica.health.cause))
        self._ejected = now
        return out

    def _held(self) -> dict[str, int]:
        """Held requests for one replica of each pool, rounded up: its part of its models' queues."""
        held: dict[str, int] = {}
        for model in self._fleet.queues:
            count = model.hold.waiting
            if count:
                for route in model.routes:
                    held[route.pool.name] = held.get(route.pool.name, 0) - (-count // max(1, model.members))
        return held


def _row(replica: Replica, held: dict[str, int]) -> Row:
    """This worker's own part: without what its peers have there."""
    peers = replica.peers
    bounded = replica.share is not None
    return Row(
        replica.id,
        replica.in_flight,
        replica.pending,
        replica.prefill - peers.prefill,
        replica.decode - peers.decode,
        replica.context - peers.context,
        held.get(replica.pool.name, 0) if bounded else 0,
        max(replica.share or 0, replica.in_flight) if bounded else 0,
    )
