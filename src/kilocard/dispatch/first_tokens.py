"""How long replicas take for the first token of a stream: the 95th percentile, for prompts of any length."""

from __future__ import annotations

from collections import deque
from statistics import median
from typing import TYPE_CHECKING

from kilocard.routing.base import Outcome
from kilocard.routing.load import ReplicaLoad

if TYPE_CHECKING:
    from kilocard.dispatch.replica import Replica

#: samples kept of each replica, needed for an estimate, and between two sortings of them
KEPT, NEEDED, EVERY = 128, 32, 16
SHARE = 0.95
#: Prompt tokens that cost as much as everything else of a first token: queue, a decode step, the way there and back.
#: At 10,000 tokens/s 1,000 of them are 0.1 s.
USUAL_PROMPT = 1000


def weight(prompt_tokens: int) -> float:
    """What a prompt's first token takes, as a multiple of an empty prompt's."""
    return 1.0 + prompt_tokens / USUAL_PROMPT


class FirstTokens:
    """One replica's last 128 times, divided by their prompts' weight. 1.1 KB."""

    __slots__ = ("_new", "_samples", "p95")

    def __init__(self) -> None:
        self._samples: deque[float] = deque(maxlen=KEPT)
        self._new = 0
        #: seconds for an empty prompt; None: not known yet
        self.p95: float | None = None

    def add(self, seconds: float) -> None:
        self._samples.append(seconds)
        self._new += 1
        if self._new >= EVERY and len(self._samples) >= NEEDED:
            self._new = 0
            self.p95 = sorted(self._samples)[int(SHARE * len(self._samples))]


class PoolFirstTokens:
    """Observes a pool's replicas, as policies do. An answer that is not streamed is no first token, and left out."""

    def __init__(self) -> None:
        self._replicas: dict[str, FirstTokens] = {}

    def observe(self, replica: ReplicaLoad, outcome: Outcome) -> None:
        if outcome.first_content_s is None or outcome.decode_s is not None:
            return
        known = self._replicas.get(replica.id)
        if known is None:
            known = self._replicas[replica.id] = FirstTokens()
        known.add(outcome.first_content_s / weight(outcome.prompt_tokens))

    def late(self, replica: Replica, prompt_tokens: int) -> float | None:
        """Seconds after which a first token is late there; None: not known.

        The lesser of the replica's own p95 and its pool's middle one: else a replica that is always slow would be
        measured by its own slowness.
        """
        pool = replica.pool.replicas
        for id in [id for id in self._replicas if id not in pool]:
            del self._replicas[id]
        all_known = [known.p95 for known in self._replicas.values() if known.p95 is not None]
        if not all_known:
            return None
        own = self._replicas.get(replica.id)
        usual = median(all_known)
        return weight(prompt_tokens) * (usual if own is None or own.p95 is None else min(own.p95, usual))
