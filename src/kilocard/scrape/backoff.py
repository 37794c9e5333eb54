"""How long to wait before trying again. Pure."""

from __future__ import annotations

import random


class Backoff:
    """1, 2, 4 … s up to `longest`, each between half and all of it by chance, so that many don't return at once."""

    def __init__(self, rng: random.Random, *, first: float = 1.0, longest: float = 30.0) -> None:
        self._rng = rng
        self._first = first
        self._longest = longest
        self._failures = 0

    def failed(self) -> float:
        """Seconds to wait after one more failure."""
        wait = min(self._longest, self._first * 2.0 ** min(self._failures, 16))
        self._failures += 1
        return wait * (0.5 + 0.5 * self._rng.random())

    def worked(self) -> None:
        self._failures = 0
