"""What a policy is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Container
from random import Random
from typing import NamedTuple, Protocol

from kilocard.core.decision import Decision
from kilocard.core.prefix import Prefix
from kilocard.routing.load import ReplicaLoad


class Outcome(NamedTuple):
    """What one attempt showed of a replica. Seconds and tokens; None: not known or not yet."""

    now: float
    prompt_tokens: int
    #: from sending to the first byte
    first_content_s: float | None
    #: from the first byte to the end, and what was generated in that time
    decode_s: float | None
    output_tokens: int | None
    failed: bool
    #: prompt tokens to be computed there from sending to the first token, own ones included; 0: not known, or it queued
    ahead: int = 0


class Observer(Protocol):
    """Learns from what attempts come to."""

    def observe(self, replica: ReplicaLoad, outcome: Outcome) -> None:
        """An attempt there came to something."""


class Policy(ABC):
    """Chooses among the replicas of one pool for one model. One instance per (model, pool): no shared cursor.

    A base, not a protocol: compiled code calls the methods of its own classes three times as fast.
    """

    name = ""
    #: whether `observe` does anything; others are spared the call
    observes = False

    @abstractmethod
    def __len__(self) -> int:
        """Replicas that can be chosen now."""

    @abstractmethod
    def add(self, replica: ReplicaLoad) -> None:
        """It can take requests (again)."""

    @abstractmethod
    def remove(self, replica: ReplicaLoad) -> None:
        """It can't, for whatever reason. Unknown replicas are fine."""

    @abstractmethod
    def forget(self, replica: ReplicaLoad) -> None:
        """It is gone for good: remove it, and what was learned of it."""

    @abstractmethod
    def update(self, replica: ReplicaLoad) -> None:
        """The load of a replica that was added has changed."""

    @abstractmethod
    def lost_cache(self, replica: ReplicaLoad) -> None:
        """It has failed, and may have been started anew: what it had cached is gone."""

    @abstractmethod
    def choose(self, exclude: Container[str] = (), prefix: Prefix | None = None) -> Decision | None:
        """One replica not in `exclude`, or None. `prefix`: what the prompt begins with, where that was looked at.

        The caller sends to the target or does not ask: a cursor may have moved.
        """

    @abstractmethod
    def lowest(
        self, count: int, exclude: Collection[str] = (), prefix: Prefix | None = None
    ) -> list[tuple[float, str]]:
        """(score, replica) of at most `count` that would be next, best first. Changes no choice, draws nothing."""

    @abstractmethod
    def observe(self, replica: ReplicaLoad, outcome: Outcome) -> None:
        """An attempt there came to something."""


class PolicyFactory(Protocol):
    def __call__(self, rng: Random) -> Policy: ...
