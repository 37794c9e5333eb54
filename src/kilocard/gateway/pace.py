"""How fast a request's body comes: a client that sends a byte now and then holds memory for hours otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kilocard.spec.model import Limits


class Pace:
    """Looked at about once a second, never per piece. Times in seconds, of the caller's clock.

    The rate is that of each stretch of `client_idle` seconds, not of the whole: else a client that has sent much at
    once could take hours for the rest.
    """

    __slots__ = ("_began", "_bytes", "_since", "running")

    def __init__(self) -> None:
        #: a body is being read
        self.running = False
        self._began = self._since = 0.0
        self._bytes = 0

    def begin(self, now: float, bytes_so_far: int = 0) -> None:
        self.running = True
        self._began = self._since = now
        self._bytes = bytes_so_far

    def too_slow(self, now: float, bytes_so_far: int, limits: Limits, total: float) -> bool:
        """`total`: seconds that no body may be over."""
        if now - self._began > total:
            return True
        waited = now - self._since
        if waited < limits.client_idle:
            return False
        if bytes_so_far - self._bytes < limits.body_rate * waited:
            return True
        self._since, self._bytes = now, bytes_so_far
        return False
