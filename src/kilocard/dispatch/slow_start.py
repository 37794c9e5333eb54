"""A new or recovered replica has an empty queue and cold caches: least-loaded policies would flood it."""

from __future__ import annotations

from kilocard.dispatch.replica import Replica
from kilocard.routing.load import UNBOUNDED

#: what a ramp leads up to where the engine's own bound is unknown, in requests
USUAL = 32


def allowance(replica: Replica, now: float, slow_start: float) -> float:
    """Requests that it may have in flight: from 1 up to what it runs at once, linear over `slow_start` seconds.

    Ends the ramp when it is over.
    """
    if replica.ramp_from is None:
        return UNBOUNDED
    passed = now - replica.ramp_from
    if passed >= slow_start:
        replica.ramp_from = None
        return UNBOUNDED
    full = replica.max_running or USUAL
    return 1 + int(full * passed / slow_start)
