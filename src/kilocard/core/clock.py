"""Time as an argument: whoever needs `now` is handed a clock; tests hand in one that they move."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    def __call__(self) -> float:
        """Seconds on a monotonic scale; only differences mean anything."""


class ManualClock:
    """A clock that moves only when told to."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> float:
        self.now += seconds
        return self.now
