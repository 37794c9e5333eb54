"""Weights from measured latency and errors."""

from __future__ import annotations

from random import Random

from kilocard.routing.base import Outcome
from kilocard.routing.load import ReplicaLoad
from kilocard.routing.scored import ScoredPolicy

#: share of the newest outcome in a replica's averages: some 10 requests make a reputation
NEW = 0.1
#: an error weighs more than a success, so that a dead replica is known after two or three
NEW_ERROR = 0.3
#: same for the pool's averages, which hundreds of requests feed
NEW_IN_POOL = 0.02
#: an error average halves in this many seconds without news, so that a shunned replica is tried again
FORGIVE = 10.0
#: success probability is never taken for less: a bad replica is some 20 times worse, not infinitely
LEAST_SUCCESS = 0.05
#: one outcome counts as at most this many times the pool's usual latency, and a replica as at least 1/4 of it
SLOWEST, FASTEST = 8.0, 0.25


class _Record:
    """What is known of one replica: latency as a multiple of the pool's (1 = usual), share of errors 0–1."""

    __slots__ = ("errors", "errors_at", "latency")

    def __init__(self) -> None:
        self.latency = 1.0
        self.errors = 0.0
        self.errors_at = 0.0


class Adaptive(ScoredPolicy):
    """Expected delay of a success: (load + 1) × latency ÷ success probability.

    Latency is normalised, so that a replica that got the long requests does not look slow: first-byte time is
    compared with the pool's average for prompts of the same size class (powers of two), decode time per output
    token with the pool's. A failure never touches latency: a 500 in 1 ms makes a replica worse, not faster.
    """

    name = "adaptive"
    observes = True
    reason = "adaptive: least load × latency ÷ success rate"

    def __init__(self, rng: Random) -> None:
        super().__init__(rng)
        self._records: dict[str, _Record] = {}
        self._first_content: dict[int, float] = {}
        self._per_token: float | None = None
        self._now = 0.0

    def score(self, replica: ReplicaLoad) -> float:
        load = 1.0 + replica.in_flight + replica.foreign + replica.waiting + replica.handicap
        record = self._records.get(replica.id)
        if record is None:
            return load
        score = load * record.latency
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
        self._now = now = outcome.now
        if outcome.failed or outcome.decode_s is not None:
            faded = record.errors * 0.5 ** ((now - record.errors_at) / FORGIVE)
            if outcome.failed:
                record.errors = faded + NEW_ERROR * (1.0 - faded)
            else:
                record.errors = faded * (1.0 - NEW)
            record.errors_at = now
        if outcome.failed:
            return
        if outcome.first_content_s is not None:
            self._first(record, outcome.prompt_tokens.bit_length(), outcome.first_content_s)
        if outcome.decode_s is not None and outcome.output_tokens and outcome.output_tokens > 1:
            self._tokens(record, outcome.decode_s / outcome.output_tokens)

    def _first(self, record: _Record, size_class: int, seconds: float) -> None:
        usual = self._first_content.get(size_class)
        if usual is None:
            self._first_content[size_class] = seconds
            return
        self._first_content[size_class] = usual + NEW_IN_POOL * (seconds - usual)
        self._blend(record, seconds, usual)

    def _tokens(self, record: _Record, seconds: float) -> None:
        usual = self._per_token
        if usual is None:
            self._per_token = seconds
            return
        self._per_token = usual + NEW_IN_POOL * (seconds - usual)
        self._blend(record, seconds, usual)

    @staticmethod
    def _blend(record: _Record, seconds: float, usual: float) -> None:
        ratio = min(SLOWEST, seconds / usual) if usual > 0 else 1.0
        record.latency = max(FASTEST, record.latency + NEW * (ratio - record.latency))
