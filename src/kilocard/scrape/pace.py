"""When a replica is scraped next: evenly spread, and less often when scraping hurts it. Pure."""

from __future__ import annotations

import math
from enum import Enum

#: the fractional parts of its multiples are the most evenly spread sequence there is, however long it grows
GOLDEN = 0.6180339887498949
#: the wait until the next scrape is at least this many times the last one's duration: at 1 Hz an answer within
#: 250 ms changes nothing, one that took 2 s is followed by a pause of 8 s. Scraping is what we give up first
#: on a busy replica, because its /health and its tokens share the event loop with its metrics page.
REST = 4.0


class Trouble(Enum):
    """Why a scrape failed."""

    #: refused, reset, no route: asking costs the engine nothing, so ask again soon after it is back
    UNREACHABLE = "unreachable"
    #: no whole page in time, or a page too large: asking is what hurts
    SLOW = "slow"
    #: an answer that is no metrics page that we know
    UNREADABLE = "unreadable"


#: longest back-off, in intervals
LONGEST = {Trouble.UNREACHABLE: 5.0, Trouble.SLOW: 30.0, Trouble.UNREADABLE: 30.0}


def phase(index: int, start: float) -> float:
    """Where in the interval, as a share 0–1, the replica that was added as number `index` has its turn.

    `start` (0–1) is drawn once per process so that several gateways don't ask one engine at the same moment.
    """
    return (start + index * GOLDEN) % 1.0


def first_due(now: float, interval: float, share: float) -> float:
    """The next moment, at or after `now` (s), whose place within the interval is `share`."""
    due = (math.floor(now / interval) + share) * interval
    return due if due >= now else due + interval


def rest_after_success(interval: float, duration: float) -> float:
    """Seconds from one scrape to the next after a page that took `duration` s."""
    return max(interval, REST * duration)


def rest_after_failure(interval: float, failures: int, trouble: Trouble) -> float:
    """Seconds from one scrape to the next after `failures` (≥ 1) failures in a row."""
    return interval * min(2.0 ** min(failures, 16), LONGEST[trouble])


def next_due(due: float, now: float, interval: float, rest: float) -> float:
    """The turn after the one that was due at `due` and ended at `now`: on the same phase, `rest` s later or more."""
    steps = max(1, math.ceil(rest / interval - 1e-6), math.ceil((now - due) / interval))
    return due + steps * interval
