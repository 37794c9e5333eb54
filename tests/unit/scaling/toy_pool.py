"""A pool as a fluid: requests flow in at a rate, each replica lets so many a second out, what is over waits.

Enough to see a Scaler at work over hours of virtual time in a fraction of a second.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

from kilocard.core.signals import BUCKETS, Phase, PoolSignals, ReplicaSignals, bucket
from kilocard.scaling.decision import ScalingDecision
from kilocard.scaling.leaving import leaving
from kilocard.scaling.limits import Limits
from kilocard.scaling.scaler import NO_LIMITS, Scaler

PROMPT, ANSWER = 1000.0, 100.0


@dataclass
class ToyReplica:
    id: str
    born: float
    ready_at: float
    draining: bool = False


@dataclass
class ToyPool:
    """`rate(t)`: requests a second; `serves`: what one replica does; `cold_s`: from its start until it serves."""

    scaler: Scaler
    rate: Callable[[float], float]
    serves: float = 1.0
    cold_s: float = 60.0
    now: float = 0.0
    queue: float = 0.0
    arrived: float = 0.0
    finished: float = 0.0
    answered: float = 0.0
    late: float = 0.0
    replica_seconds: float = 0.0
    source: str = "gateway 0"
    replicas: list[ToyReplica] = field(default_factory=list)
    decisions: list[ScalingDecision] = field(default_factory=list)
    first: list[int] = field(default_factory=lambda: [0] * BUCKETS)
    born: int = 0

    def start(self, count: int, ready_at: float | None = None) -> ToyPool:
        for _ in range(count):
            ready = self.now + self.cold_s if ready_at is None else ready_at
            self.replicas.append(ToyReplica(f"p-{self.born}", self.now, ready))
            self.born += 1
        return self

    @property
    def ready(self) -> list[ToyReplica]:
        return [each for each in self.replicas if each.ready_at <= self.now]

    def signals(self) -> tuple[PoolSignals, list[ReplicaSignals]]:
        ready = self.ready
        on_each = min(2.0, self.queue / max(1, len(ready)))
        replicas = [
            ReplicaSignals(each.id, "p", Phase.READY, self.now - each.ready_at, running=1.0, waiting=on_each, age_s=0.3)
            if each.ready_at <= self.now
            else ReplicaSignals(each.id, "p", Phase.LOADING, self.now - each.born)
            for each in self.replicas
        ]
        held = max(0.0, self.queue - on_each * len(ready))
        return PoolSignals(
            "p",
            sources=(self.source,),
            arrived=self.arrived,
            prompt_tokens=self.arrived * PROMPT,
            finished=self.finished,
            output_tokens=self.finished * ANSWER,
            first_token=tuple(self.first),
            held=held,
        ), replicas

    def step(self, limits: Limits = NO_LIMITS) -> ScalingDecision:
        """One second."""
        came = self.rate(self.now)
        able = self.serves * len(self.ready)
        wait = self.queue / able if able else 1e9
        done = min(self.queue + came, able)
        self.arrived += came
        self.finished += done
        self.queue += came - done
        self.answered += done
        whole = int(self.answered) - sum(self.first)
        self.first[bucket(wait + 0.2)] += whole
        self.late += came if wait > 2.0 else 0.0
        self.now += 1.0
        self.replica_seconds += len(self.replicas)
        decision = self.scaler.decide(self.now, *self.signals(), limits)
        self.decisions.append(decision)
        self.start(decision.wanted - decision.have)
        gone = {each.replica for each in leaving(self.signals()[1], decision.have - decision.wanted)}
        self.replicas = [each for each in self.replicas if each.id not in gone]
        return decision

    def run(self, seconds: float, limits: Limits = NO_LIMITS) -> ToyPool:
        end = self.now + seconds
        while self.now < end:
            self.step(limits)
        return self

    @property
    def changes(self) -> list[ScalingDecision]:
        return [each for each in self.decisions if each.wanted != each.have]

    @property
    def turns(self) -> int:
        """How often the direction changed."""
        up = [each.wanted > each.have for each in self.changes]
        return sum(a != b for a, b in pairwise(up))
