"""Why a request went where it went."""

from __future__ import annotations

from typing import NamedTuple


class Decision(NamedTuple):
    """`target` is a replica id; `reason` is never empty; `score` is the policy's own figure, lower is better.

    `cached`: tokens of the prompt that are expected in the replica's cache.
    """

    target: str
    reason: str
    score: float
    cached: int = 0
