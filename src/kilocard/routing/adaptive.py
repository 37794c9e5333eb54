"""Weights from measured latency and errors."""

from __future__ import annotations

from math import log2
from random import Random
from typing import Final

from kilocard.routing.base import Outcome
from kilocard.routing.gauged import GaugedPolicy
from kilocard.routing.load import ReplicaLoad

#: a request that waits counts as this many that run
QUEUE_WEIGHT: Final = 4.0
#: share of the newest outcome in a replica's averages: some 20 requests make a reputation
NEW: Final = 0.05
#: an error weighs more than a success, so that a dead replica is known after two or three
NEW_ERROR: Final = 0.3
#: same for the pool's averages, which hundreds of requests feed
NEW_IN_POOL: Final = 0.02
#: an error average halves in this many seconds without news, so that a shunned replica is tried again
FORGIVE: Final = 10.0
#: key of decode time per token among the size classes
PER_TOKEN: Final = -1
#: seconds; less than this is not told apart
LEAST_SECONDS: Final = 1e-5
LOG_LEAST: Final = log2(LEAST_SECONDS)
#: success probability is never taken for less: a bad replica is some 20 times worse, not infinitely
LEAST_SUCCESS: Final = 0.05
#: one outcome counts as at most 2³ times slower or faster than usual: queueing makes single first bytes very late
CLIP: Final = 3.0


class _Record:
    """What is known of one replica: how slow, as log₂ of a multiple of the pool's usual (0 = usual); errors 0–1."""

    __slots__ = ("errors", "errors_at", "factor", "slowness")

    def __init__(self) -> None:
        self.slowness = 0.0
        #: 2 to the power of slowness
        self.factor = 1.0
        self.errors = 0.0
        self.errors_at = 0.0


class Adaptive(GaugedPolicy):
    """Expected delay of a success: (load + 1) × slowness ÷ success probability. What only gauges say of the load counts
    as far as it is believed (gauged.py).

    Latency is normalised, so that a replica that got the long requests does not look slow: first-byte time is
    compared with the pool's average for prompts of the same size class (powers of two), decode time per output
    token with the pool's. Averages are of logarithms, because queueing makes the tail long. A failure never touches
    latency: a 500 in 1 ms makes a replica worse, not faster.
    """

    name = "adaptive"
    observes = True
    reason = "adaptive: least load × slowness ÷ success rate"

    def __init__(self, rng: Random) -> None:
        super().__init__(rng)
        self._records: dict[str, _Record] = {}
        #: the pool's usual log₂ seconds: by prompt size class, and per output token under the key −1
        self._usual: dict[int, float] = {}
        self._now = 0.0

    def score(self, replica: ReplicaLoad) -> float:
        own = replica.in_flight + replica.peers[0] + replica.handicap
        gauged = QUEUE_WEIGHT * replica.waiting + replica.foreign - replica.peers[0]
        load = 1.0 + own + self.belief * gauged
        record = self._records.get(replica.id)
        if record is None:
            return load
        score = load * record.factor
        if record.errors > 0.01:
            faded = record.errors * 0.5 ** ((self._now - record.errors_at) / FORGIVE)
            score /= max(LEAST_SUCCESS, 1.0 - faded)
        return score

    def forget(self, replica: ReplicaLoad) -> None:
        self.remove(replica)
        self._records.pop(replica.id, None)

    def observe(self, replica: ReplicaLoad, outcome: Outcome) -> None:
        record = self._records.get(replica.id)
        if record is None:
            record = self._records[replica.id] = _Record()
        now, prompt, first, decode, output, failed, _ = outcome
        self._now = now
        if failed:
            faded = record.errors * 0.5 ** ((now - record.errors_at) / FORGIVE)
            record.errors = faded + NEW_ERROR * (1.0 - faded)
            record.errors_at = now
            return
        if first is not None:
            self._compare(record, prompt.bit_length(), first)
        if decode is not None:
            record.errors *= 1.0 - NEW
            if decode > 0.0 and output is not None and output > 1:
                self._compare(record, PER_TOKEN, decode / (output - 1))

    def _compare(self, record: _Record, key: int, seconds: float) -> None:
        measured = log2(seconds) if seconds > LEAST_SECONDS else LOG_LEAST
        usual = self._usual.get(key)
        if usual is None:
            self._usual[key] = measured
            return
        ratio = measured - usual
        self._usual[key] = usual + NEW_IN_POOL * ratio
        ratio = min(CLIP, max(-CLIP, ratio))
        record.slowness += NEW * (ratio - record.slowness)
        record.factor = 2.0**record.slowness
