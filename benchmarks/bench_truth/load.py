"""The load that every tool is asked for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Load:
    """Closed loop, all lengths fixed; tokens."""

    concurrency: int
    input: int
    output: int
    #: measured ones; a multiple of the concurrency, so that no tool ends on a half-empty batch
    requests: int
    seed: int
