"""The highest value of the last seconds."""

from __future__ import annotations

from collections import deque

from kilocard.scaling.saved import number


class Peak:
    """O(1) on average: values that a later, higher one hides are forgotten."""

    def __init__(self) -> None:
        self._held: deque[tuple[float, float]] = deque()

    def add(self, now: float, value: float) -> None:
        """In order of time."""
        held = self._held
        while held and held[-1][1] <= value:
            held.pop()
        held.append((now, value))

    def over(self, seconds: float, now: float) -> float | None:
        """The highest since then; the newest always counts. What is older is forgotten. None: there was none."""
        held = self._held
        while len(held) > 1 and held[0][0] < now - seconds:
            held.popleft()
        return held[0][1] if held else None

    def snapshot(self, now: float) -> list[list[float]]:
        """(age, value), as JSON data."""
        return [[round(now - at, 3), value] for at, value in self._held]

    def restore(self, now: float, saved: object) -> None:
        """What `snapshot` gave."""
        for entry in saved if isinstance(saved, list) else ():
            match entry:
                case [age, value] if (ago := number(age)) is not None and (high := number(value)) is not None:
                    self.add(now - ago, high)
