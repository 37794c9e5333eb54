"""The default: shortest estimated queue first, then least work, then memory."""

from __future__ import annotations

from typing import Final

from kilocard.routing.gauged import GaugedPolicy
from kilocard.routing.load import ReplicaLoad

#: A request that waits is in front of the new one, one that runs is beside it. Any value from 1 to 16 gives the same
#: tail within noise, because what waits is in the other terms too; 8 keeps the order "queue first" for usual sizes.
QUEUE_WEIGHT: Final = 8.0
#: Prompt tokens still to be prefilled that count as one request: they are in front of the new request's first token.
#: At 10,000–20,000 tokens/s, 256 of them take 15–25 ms, about one decode step: what one more running request costs.
PREFILL_PER_REQUEST: Final = 1 / 256
#: Expected output tokens that count as one request: how long slots stay taken. Weak, because max_tokens says little.
DECODE_PER_REQUEST: Final = 1 / 512
#: A full KV cache counts as this many requests: about half of a usual batch. It tells long contexts from short ones.
KV_WEIGHT: Final = 16.0


class QueueDepth(GaugedPolicy):
    """score = in flight + peers' + prefill tokens/256 + decode tokens/512 + 16 × own KV share + handicap
    + belief × (8 × waiting + requests that only gauges show + 16 × KV use beyond our own).

    All terms in requests. `waiting` is the estimate of load.py: gauges corrected by what we sent and saw end since.
    KV use is the gauge's where it is more than our own expected tokens ÷ capacity. Long and short requests are
    different traffic (R23): two of 8,000 tokens weigh more than four of 200. `belief` is 1 where nobody else sends.
    """

    name = "queue_depth"
    reason = "queue_depth: shortest estimated queue, least work"
    #: half of it to twice as much is the same within noise
    coarse = QUEUE_WEIGHT

    def score(self, replica: ReplicaLoad) -> float:
        own, gauged = self.parts(replica)
        return own + self.belief * gauged

    def parts(self, replica: ReplicaLoad) -> tuple[float, float]:
        """What we know of it ourselves: our requests there and our peers', and what health says. And what only gauges
        say."""
        peers = replica.peers[0]
        kv = replica.context * replica.kv_per_token
        own = (
            replica.in_flight
            + peers
            + PREFILL_PER_REQUEST * replica.prefill
            + DECODE_PER_REQUEST * replica.decode
            + KV_WEIGHT * kv
            + replica.handicap
        )
        gauged = QUEUE_WEIGHT * replica.waiting + replica.foreign - peers
        usage = replica.kv_usage
        if usage is not None and usage > kv:
            gauged += KV_WEIGHT * (usage - kv)
        return own, gauged
