"""One thread, one epoll, everything else waits: the loop that a load tester needs.

Engines finish a step and send a token to every stream at once, so that thousands of sockets become readable together.
An event loop that runs a callback for each stamps the last one when all others have been dealt with. Here reading comes
first: what is readable is read and stamped, and only when nothing more is readable (or enough has piled up) is it
parsed, in slices, with a look at the sockets and the timers between two slices.
"""

from __future__ import annotations

import heapq
import select
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

#: sockets read between two looks at the timers: about 1 ms
READS_A_TURN = 256
#: pieces parsed between two looks at the sockets: about 0.5 ms
PARSES_A_TURN = 64
#: timers run in one turn: each may send a request
TIMERS_A_TURN = 16
#: pieces read and not parsed; more are parsed before reading goes on, so that memory is bounded
MOST_PIECES = 20_000
READ, WRITE, ENDED = select.EPOLLIN, select.EPOLLOUT, select.EPOLLERR | select.EPOLLHUP


class Watched(Protocol):
    def ready(self, events: int, now: float, floor: float) -> None:
        """The socket can be read or written. `floor`: before that time nothing can have come. Must not parse."""


class Loop:
    """Times are seconds on the clock of `now`."""

    def __init__(self, started_ns: int | None = None) -> None:
        self._started_ns = time.monotonic_ns() if started_ns is None else started_ns
        self._epoll = select.epoll()
        self._watched: dict[int, Watched] = {}
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._timer_count = 0
        self._pieces: deque[Callable[[], None]] = deque()
        self._looked_s = self.now()
        #: the wall clock minus ours, ns: kernel stamps are on the wall clock. Taken anew at each look, so that a clock
        #: that is being set does no harm
        self.wall_offset_ns = 0
        self.slept_s = 0.0

    def now(self) -> float:
        return (time.monotonic_ns() - self._started_ns) * 1e-9

    def watch(self, descriptor: int, events: int, watched: Watched) -> None:
        self._epoll.register(descriptor, events)
        self._watched[descriptor] = watched

    def change(self, descriptor: int, events: int) -> None:
        self._epoll.modify(descriptor, events)

    def forget(self, descriptor: int) -> None:
        if self._watched.pop(descriptor, None) is not None:
            self._epoll.unregister(descriptor)

    def at(self, when: float, what: Callable[[], None]) -> None:
        self._timer_count += 1
        heapq.heappush(self._timers, (when, self._timer_count, what))

    def later(self, piece: Callable[[], None]) -> None:
        """Parse this when there is time. In order."""
        self._pieces.append(piece)

    def turn(self, until: float) -> None:
        """Look, read, run what is due, parse some. Returns at `until` at the latest, but for what is being done."""
        now = self.now()
        if self._timers:
            until = min(until, self._timers[0][0])
        floor = self._looked_s
        if not self._pieces and until > now:
            # epoll's own timeout counts milliseconds; an epoll is itself a descriptor, and select counts microseconds.
            select.select([self._epoll], [], [], until - now)
            floor = self.now()
            self.slept_s += floor - now
        ready = self._epoll.poll(0, READS_A_TURN)
        looked = self.now()
        self.wall_offset_ns = time.time_ns() - time.monotonic_ns() + self._started_ns
        for descriptor, events in ready:
            watched = self._watched.get(descriptor)
            if watched is not None:
                watched.ready(events, looked, floor)
        if len(ready) < READS_A_TURN:
            # With a full hand some of the ready sockets were not among them, and their floor stays.
            self._looked_s = looked
        self._run_timers()
        if len(ready) < READS_A_TURN or len(self._pieces) > MOST_PIECES:
            for _ in range(min(PARSES_A_TURN, len(self._pieces))):
                self._pieces.popleft()()

    def _run_timers(self) -> None:
        timers = self._timers
        for _ in range(TIMERS_A_TURN):
            if not timers or timers[0][0] > self.now():
                return
            heapq.heappop(timers)[2]()

    def close(self) -> None:
        self._timers.clear()
        self._pieces.clear()
        self._epoll.close()
