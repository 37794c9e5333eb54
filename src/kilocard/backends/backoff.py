"""How long to wait before the next start, and when quick failures are a crash loop. One rule for all backends. Pure."""

from __future__ import annotations

from typing import NamedTuple

from kilocard.spec.model import StartSpec

#: a replica that served this long was fine: its exit starts the count of quick failures anew (our choice)
STABLE_SECONDS = 60.0


class Wait(NamedTuple):
    #: until the next start
    seconds: float
    #: quick failures in a row that make a crash loop; None: it is none
    loop: int | None


class Backoff:
    """Counts the quick failures of one replica."""

    def __init__(self, start: StartSpec) -> None:
        self._start = start
        self._failures = 0

    def reset(self) -> None:
        self._failures = 0

    def failed(self, served: float) -> Wait:
        """It ended after it had served for so many seconds (0: it was never ready)."""
        self._failures = 1 if served >= STABLE_SECONDS else self._failures + 1
        if self._failures >= self._start.crash_loop:
            return Wait(self._start.backoff_max, self._failures)
        # the exponent is bounded by crash_loop, but a float must not overflow whatever the file says
        delay = self._start.backoff * 2.0 ** min(self._failures - 1, 60)
        return Wait(min(delay, self._start.backoff_max), None)
