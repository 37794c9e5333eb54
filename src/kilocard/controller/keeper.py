"""One pool in the controller's hands: its scaler, its journal, and what is wanted and can't be started yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kilocard.core.signals import ClusterSignals, Phase, ReplicaSignals
from kilocard.scaling.decision import ScalingDecision
from kilocard.scaling.journal import Journal
from kilocard.scaling.limits import Limits
from kilocard.scaling.scaler import Scaler
from kilocard.spec.model import PoolSpec

#: seconds until a start that failed is tried again: the first time, and at most
RETRY_S, RETRY_MOST_S = 1.0, 30.0


@dataclass(slots=True)
class Pending:
    """A replica that is wanted and could not be started: no GPU is free, or the backend failed."""

    id: str
    since: float
    reason: str = ""
    #: when it is tried next
    due: float = 0.0
    tries: int = 0
    #: it waits for a GPU, which is no error
    shortage: bool = False

    def failed(self, now: float, reason: str, *, shortage: bool) -> None:
        self.reason, self.shortage = reason, shortage
        # a GPU may come free any moment, and asking costs nothing; what is broken is left alone for longer each time
        pause = RETRY_S if shortage else min(RETRY_MOST_S, RETRY_S * 2.0 ** min(self.tries, 10))
        self.tries += 1
        self.due = now + pause


class Keeper:
    def __init__(self, pool: PoolSpec, scrape_s: float, gpus: int | None) -> None:
        """`gpus`: of one replica; None: as the cluster file says."""
        self.pool = pool
        self.scaler = Scaler(pool, scrape_s=scrape_s, gpus_per_replica=gpus)
        self.journal = Journal()
        self.decision: ScalingDecision | None = None
        self.pending: dict[str, Pending] = {}
        #: replicas by phase at the last look
        self.phases: dict[Phase, int] = {}
        self._known = (pool, scrape_s, gpus)
        self._number = 0

    def adopt(self, pool: PoolSpec, scrape_s: float, gpus: int | None, now: float) -> None:
        """The cluster file has changed: other bounds or another policy, the same history."""
        if (pool, scrape_s, gpus) == self._known:
            return
        self._known = (pool, scrape_s, gpus)
        old, self.pool = self.scaler, pool
        self.scaler = Scaler(pool, scrape_s=scrape_s, gpus_per_replica=gpus)
        self.scaler.follow(now, old)

    def decide(self, signals: ClusterSignals, limits: Limits) -> ScalingDecision:
        """How many, by what is known; kept in the journal."""
        there, replicas = signals.of(self.pool.name)
        wished = tuple(
            ReplicaSignals(each.id, self.pool.name, Phase.PENDING, since_s=signals.now - each.since)
            for each in self.pending.values()
        )
        self.phases = dict.fromkeys(Phase, 0)
        for replica in (*replicas, *wished):
            self.phases[replica.phase] += 1
        self.decision = self.scaler.decide(signals.now, there, (*replicas, *wished), limits)
        self.journal.add(self.decision)
        return self.decision

    def wish(self, now: float) -> Pending:
        """One more."""
        self._number += 1
        pending = Pending(f"{self.pool.name}/wanted-{self._number}", now, due=now)
        self.pending[pending.id] = pending
        return pending

    def restore(self, now: float, saved: Mapping[str, Any], away_s: float) -> None:
        self.scaler.restore(now, saved, away_s)
