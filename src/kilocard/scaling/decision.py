"""What was decided about one pool, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

#: what a decision was made of; units are in the names
Numbers = Mapping[str, float | int | str | None]


class Reason(StrEnum):
    """The closed list of reasons."""

    # it grows
    ABOVE = "above"  # threshold: the signal was above its bound for long enough
    DEMAND = "demand"  # target: what comes needs more replicas
    BACKLOG = "backlog"  # target: what waits needs more replicas
    HELD = "held"  # requests wait and there is no replica: from zero
    AT_LEAST = "at_least"  # below replicas.min or a schedule's
    # it shrinks
    BELOW = "below"  # threshold: the signal was below its bound for long enough
    SURPLUS = "surplus"  # target: fewer replicas hold the objective
    IDLE = "idle"  # nothing came for long enough: to zero
    AT_MOST = "at_most"  # above replicas.max or a schedule's
    # it stays as it is
    STEADY = "steady"  # nothing to change
    WAITING = "waiting"  # a condition holds, but not for long enough yet
    COOLING = "cooling"  # too soon after the last change
    LIMITED = "limited"  # more are needed than the maximum, the quota or the budget allows, or most of them fail
    NO_GPU = "no_gpu"  # more are wanted already, and wait for a GPU
    BLIND = "blind"  # signals are missing or old, so nothing is removed


@dataclass(frozen=True, slots=True)
class ScalingDecision:
    """`wanted` replicas in place of the `have` that the pool has (those that leave do not count)."""

    at: float
    pool: str
    have: int
    wanted: int
    reason: Reason
    sentence: str
    numbers: Numbers = field(default_factory=dict)

    def to_mapping(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "at": self.at, "pool": self.pool, "have": self.have, "wanted": self.wanted, "reason": self.reason.value,
            "sentence": self.sentence, "numbers": dict(self.numbers),
        }  # fmt: skip
