"""The load that every tool is asked for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Load:
    """Closed loop; lengths are tokens."""

    concurrency: int
    input: int
    output: int
    #: answers have `output` tokens give or take this share, each length equally often. 0: all end at the same moment
    spread: float
    #: measured ones; a multiple of the concurrency, so that no tool ends on a half-empty batch
    requests: int
    seed: int

    @property
    def shortest(self) -> int:
        return round(self.output * (1 - self.spread))

    @property
    def longest(self) -> int:
        return round(self.output * (1 + self.spread))

    @property
    def place(self) -> str:
        """In words: what is the same in all rounds."""
        lengths = f"{self.shortest}–{self.longest}" if self.spread else f"{self.output}"
        return f"{self.concurrency} at once, {self.input} → {lengths} tokens"
