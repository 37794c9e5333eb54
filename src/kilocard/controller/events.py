"""What the controller did, and what went wrong: the last of it for people, and a line in the log for each."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from kilocard.core.clock import Clock
from kilocard.core.errors import KilocardError

#: events that are kept
MOST = 200

log = logging.getLogger("kilocard.controller")


class Kind(StrEnum):
    STARTED = "started"  # a replica is on its way
    PENDING = "pending"  # one more is wanted, and no GPU is free
    READY = "ready"  # a replica that was started serves
    DRAINING = "draining"  # a replica was chosen to go
    GONE = "gone"  # and has stopped
    RESUMED = "resumed"  # an earlier controller's drain is picked up
    LEADS = "leads"  # the lease is ours
    STANDBY = "standby"  # another controller has it
    ERROR = "error"


@dataclass(slots=True)
class Event:
    """`at`: the first time, `last`: the latest, of the controller's clock; `count` times in a row."""

    at: float
    last: float
    kind: Kind
    text: str
    pool: str = ""
    replica: str = ""
    count: int = 1


class Events:
    """A ring. What repeats the entry before it only counts there, and is in the log once."""

    def __init__(self, clock: Clock, size: int = MOST) -> None:
        self._clock = clock
        self._ring: deque[Event] = deque(maxlen=size)
        #: errors since the start, by what was being done
        self.errors: Counter[str] = Counter()

    def __iter__(self) -> Iterator[Event]:
        """Oldest first."""
        return iter(self._ring)

    def say(self, kind: Kind, text: str, pool: str = "", replica: str = "") -> None:
        """It has happened."""
        if self._add(kind, text, pool, replica):
            log.info("%s", f"{replica or pool or 'controller'} {kind}" + (f": {text}" if text else ""))

    def trouble(self, where: str, error: BaseException, pool: str = "") -> None:
        """It was tried and failed."""
        self.errors[where] += 1
        text = f"{where}: {words(error)}"
        if self._add(Kind.ERROR, text, pool, ""):
            known = isinstance(error, KilocardError | OSError)
            log.error("controller%s, %s", f", pool {pool}" if pool else "", text, exc_info=None if known else error)

    def _add(self, kind: Kind, text: str, pool: str, replica: str) -> bool:
        now = self._clock()
        if self._ring:
            last = self._ring[-1]
            if (last.kind, last.text, last.pool, last.replica) == (kind, text, pool, replica):
                last.last, last.count = now, last.count + 1
                return False
        self._ring.append(Event(now, now, kind, text, pool, replica))
        return True


def words(error: BaseException) -> str:
    """An error for people. Those that nobody foresaw say what they are."""
    if isinstance(error, KilocardError):
        return error.message
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
