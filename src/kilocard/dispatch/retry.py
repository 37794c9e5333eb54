"""A bound on retries, so that an outage of everything is not multiplied by the attempts."""

from __future__ import annotations

from typing import Final

#: each new request earns this much of a retry
SHARE: Final = 0.2
#: and time earns this many a second, so that a quiet model can retry too
PER_SECOND = 10.0
#: what can be saved up: this, plus this share of the requests in the gateway, so that the death of one replica with
#: all its streams is survived
SAVED = 50.0
SAVED_SHARE = 0.5


class RetryBudget:
    """Retries of one model: at most 20 % of its requests plus 10 a second, with a store for bursts."""

    __slots__ = ("_at", "denied", "tokens")

    def __init__(self) -> None:
        self.tokens = SAVED
        #: retries that were not made, since there was nothing left
        self.denied = 0
        self._at: float | None = None

    def take(self, now: float, live: int) -> bool:
        """One retry; False: none left. `live`: requests in the gateway."""
        if self._at is not None:
            self.tokens += (now - self._at) * PER_SECOND
        self._at = now
        self.cap(live)
        if self.tokens < 1.0:
            self.denied += 1
            return False
        self.tokens -= 1.0
        return True

    def cap(self, live: int) -> None:
        """Forget what was saved beyond the bound."""
        self.tokens = min(self.tokens, SAVED + SAVED_SHARE * live)
