"""Fewest requests in flight."""

from __future__ import annotations

from kilocard.routing.load import ReplicaLoad
from kilocard.routing.scored import ScoredPolicy


class LeastConnections(ScoredPolicy):
    """Own requests in flight, and nothing else: what nginx's least_conn and Envoy's LEAST_REQUEST see.

    Kept pure so that comparisons are fair; only the handicap of a failing replica is added. Requests of this gateway's
    other workers are own ones.
    """

    name = "least_connections"
    reason = "least_connections: fewest requests in flight"

    def score(self, replica: ReplicaLoad) -> float:
        return replica.in_flight + replica.peers[0] + replica.handicap
