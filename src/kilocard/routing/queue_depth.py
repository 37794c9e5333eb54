"""The default: shortest estimated queue first."""

from __future__ import annotations

from kilocard.routing.load import ReplicaLoad
from kilocard.routing.scored import ScoredPolicy

#: a request that waits counts as this many that run: it is in front of the new one, a running one is beside it
QUEUE_WEIGHT = 4.0
#: prompt tokens still to be prefilled that count as one request
PREFILL_TOKENS = 1024.0
#: expected output tokens that count as one request
DECODE_TOKENS = 512.0
KV_WEIGHT = 1.0


class QueueDepth(ScoredPolicy):
    name = "queue_depth"
    reason = "queue_depth: shortest estimated queue"

    def score(self, replica: ReplicaLoad) -> float:
        return (
            QUEUE_WEIGHT * replica.waiting
            + replica.in_flight
            + replica.foreign
            + replica.prefill / PREFILL_TOKENS
            + replica.decode / DECODE_TOKENS
            + KV_WEIGHT * (replica.kv_usage or 0.0)
            + replica.handicap
        )
