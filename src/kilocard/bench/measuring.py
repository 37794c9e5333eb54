"""What a closed and an open loop have in common: begin, let the client work, watch the time, end."""

from __future__ import annotations

import gc
import math
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from kilocard.bench.ask import Ask
from kilocard.bench.client import Client
from kilocard.bench.point import ClientHealth
from kilocard.bench.record import RequestRecord
from kilocard.bench.watch import BEAT_S, Watch

#: seconds between two calls of `on_tick`
TICK_S = 0.25


@dataclass(slots=True)
class Progress:
    """Where a drive stands; counts since its start."""

    #: seconds since its start
    at_s: float
    in_flight: int
    done: int
    failed: int
    #: arrivals that carried tokens
    arrivals: int
    #: when the oldest request in flight was intended, on the client's clock; infinity: none is
    oldest_s: float
    #: of those that are done, in the order in which they ended. It grows: look, and don't keep
    records: Sequence[RequestRecord]


@dataclass(slots=True)
class Driven:
    """What came of it. Times on the client's clock, as in the records."""

    started_s: float
    ended_s: float = 0.0
    #: in the order in which they ended; those that were cut off at the end come last
    records: list[RequestRecord] = field(default_factory=list)
    health: ClientHealth = field(default_factory=ClientHealth)
    #: requests sent a second time, since a reused connection had been closed
    retried: int = 0
    #: Ctrl-C, or `on_tick` said so
    stopped: bool = False


#: called a few times a second from within the loop, so it has to be quick; True ends the drive
OnTick = Callable[[Progress], bool | None]


class Drive:
    """One measurement; used once."""

    #: are requests sent at times that were set before?
    open_loop = False

    def __init__(self, client: Client) -> None:
        self.client = client
        self.started_s = client.now()
        self.driven = Driven(self.started_s)
        #: sessions with a turn that is in flight or thinks: the turns behind it, in order
        self._behind: dict[str, deque[Ask]] = {}
        #: when the last turn of a session ended, where none runs
        self._turn_ended_s: dict[str, float] = {}
        self._failed = 0
        self._over = False

    def run(self, seconds: float | None, on_tick: OnTick | None) -> Driven:
        client = self.client
        retried = client.retried
        with _undisturbed():
            # Only now: what that took is not lateness of the first requests.
            self.started_s = self.driven.started_s = client.now()
            until = math.inf if seconds is None else self.started_s + seconds
            client.watch = Watch(client.loop.slept_s)
            self._beat(self.started_s + BEAT_S)
            try:
                self._begin()
                next_tick = self.started_s
                while not self._finished():
                    now = client.now()
                    if now >= until:
                        break
                    if on_tick is not None and now >= next_tick:
                        next_tick = now + TICK_S
                        if on_tick(self._progress(now)):
                            self.driven.stopped = True
                            break
                    client.turn(min(until, next_tick) if on_tick else until)
            except KeyboardInterrupt:
                self.driven.stopped = True
            self._over = True
            self.driven.ended_s = client.now()
            self.driven.health = client.watch.health(client.loop.slept_s, self.driven.records, open_loop=self.open_loop)
            client.cut_off()
        self.driven.retried = client.retried - retried
        return self.driven

    def _begin(self) -> None:
        raise NotImplementedError

    def _finished(self) -> bool:
        raise NotImplementedError

    def _ended(self, ask: Ask, record: RequestRecord) -> None:
        """A request ended and the drive goes on."""
        raise NotImplementedError

    def _turn_ready(self, ask: Ask, ready_s: float) -> None:
        """A later turn of a session may be sent at `ready_s` at the earliest."""
        raise NotImplementedError

    def _send(self, ask: Ask, intended_s: float) -> None:
        self.client.start(ask, intended_s, lambda record: self._done(ask, record))

    def _done(self, ask: Ask, record: RequestRecord) -> None:
        self.driven.records.append(record)
        self._failed += record.error is not None
        if self._over:
            return
        if ask.session is not None:
            self._turn_ended(ask.session)
        self._ended(ask, record)

    def _turn_ended(self, session: str) -> None:
        now = self.client.now()
        behind = self._behind[session]
        if behind:
            ask = behind.popleft()
            self._turn_ready(ask, now + ask.think_s)
        else:
            del self._behind[session]
            self._turn_ended_s[session] = now

    def _waits(self, ask: Ask) -> bool:
        """Has its session's turn before still to end, or to be thought about? Then `_turn_ready` follows."""
        if ask.session is None:
            return False
        behind = self._behind.get(ask.session)
        if behind is not None:
            behind.append(ask)
            return True
        self._behind[ask.session] = deque()
        ended_s = self._turn_ended_s.pop(ask.session, None)
        if ended_s is None or ended_s + ask.think_s <= self.client.now():
            return False
        self._turn_ready(ask, ended_s + ask.think_s)
        return True

    def _progress(self, now: float) -> Progress:
        records = self.driven.records
        return Progress(
            now - self.started_s,
            self.client.in_flight,
            len(records),
            self._failed,
            self.client.watch.arrivals,
            self.client.oldest_s,
            records,
        )

    def _beat(self, due: float) -> None:
        """A timer all the time: how late is it when the client is late?"""

        def beat() -> None:
            now = self.client.now()
            self.client.watch.beats.append(now - due)
            if not self._over:
                self._beat(max(now, due + BEAT_S))

        self.client.loop.at(due, beat)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """No pauses that are ours to avoid: no garbage collection (records make no cycles), and a thread that shows the
    progress gives the interpreter back after half a millisecond, not five."""
    interval, collecting = sys.getswitchinterval(), gc.isenabled()
    gc.collect()
    gc.freeze()
    gc.disable()
    sys.setswitchinterval(0.0005)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)
        gc.unfreeze()
        if collecting:
            gc.enable()
