"""Closed loop: so many at once. Open loop: at their times, whether or not the server keeps up."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from kilocard.bench import failures
from kilocard.bench.ask import Ask
from kilocard.bench.client import Client
from kilocard.bench.measuring import Drive, Driven, OnTick
from kilocard.bench.record import RequestRecord
from kilocard.core.errors import UsageError

#: asks of sessions whose turn before is still running, held back in a closed loop while a slot looks for another one
MOST_HELD = 1000
#: a slot of a closed loop whose request failed is taken up again after so long: a server that refuses at once would
#: otherwise be asked again thousands of times a second, and be measured at that
REST_S = 0.1


def drive_closed(
    client: Client,
    make_ask: Callable[[], Ask | None],
    concurrency: int,
    *,
    seconds: float | None = None,
    requests: int | None = None,
    on_tick: OnTick | None = None,
) -> Driven:
    """Keep `concurrency` requests in flight for `seconds`, or until `requests` have been sent and answered.

    `make_ask` is called when a slot is free and should take microseconds; None: there is no more. A later turn of a
    session waits for the one before, and meanwhile its slot takes another ask; one that thinks holds no slot. A slot
    whose request failed rests for REST_S. What is in flight when the time is over is cut off, and its records say so.
    """
    if seconds is None and requests is None:
        raise UsageError("a closed loop needs an end: seconds or a number of requests")
    if concurrency > client.max_sockets:
        raise UsageError(f"{concurrency} at once need more than the {client.max_sockets} sockets that we may open")
    return _Closed(client, make_ask, concurrency, requests).run(seconds, on_tick)


def drive_open(
    client: Client, asks: Iterable[Ask], *, seconds: float | None = None, on_tick: OnTick | None = None
) -> Driven:
    """Send each ask at its `at_s` after the start of the drive; asks come in this order.

    Sends never wait for answers. Every latency counts from the intended time. A later turn of a session is sent at its
    time or `think_s` after the end of the turn before, whichever is later, and that is then its intended time. Without
    `seconds` the drive ends with the last answer; with it, what is in flight then is cut off, and its records say so.
    """
    return _Open(client, asks).run(seconds, on_tick)


class _Closed(Drive):
    def __init__(
        self, client: Client, make_ask: Callable[[], Ask | None], concurrency: int, requests: int | None
    ) -> None:
        super().__init__(client)
        self._make_ask = make_ask
        self._left = math.inf if requests is None else requests
        self._concurrency = concurrency
        self._running = 0
        #: turns that think
        self._thinking = 0
        self._ready: deque[Ask] = deque()
        self._held = 0
        self._dry = False

    def _begin(self) -> None:
        self._fill(self.started_s)

    def _finished(self) -> bool:
        nothing_left = self._left <= 0 or (self._dry and not self._ready and not self._thinking)
        return self._running == 0 and nothing_left

    def _fill(self, free_s: float) -> None:
        """Take up one slot, if one is free and there is something to send. `free_s`: since when that could be done."""
        if self._over or self._running >= self._concurrency or self._left <= 0:
            return
        ask = self._next()
        if ask is not None:
            self._left -= 1
            self._running += 1
            now = self.client.now()
            self.client.watch.late.append(now - free_s)
            self._send(ask, now)
            # One timer for each: a thousand connects in a row would leave the first answers unread.
            self._fill_soon(self.client.now())

    def _fill_soon(self, free_s: float) -> None:
        self.client.loop.at(self.client.now(), partial(self._fill, free_s))

    def _next(self) -> Ask | None:
        if self._ready:
            return self._ready.popleft()
        while not self._dry and self._held < MOST_HELD:
            ask = self._make_ask()
            if ask is None:
                self._dry = True
            elif not self._waits(ask):
                return ask
            else:
                self._held += 1
        return None

    def _turn_ready(self, ask: Ask, ready_s: float) -> None:
        self._held -= 1
        self._thinking += 1

        def ready() -> None:
            self._thinking -= 1
            self._ready.append(ask)
            self._fill(ready_s)

        self.client.loop.at(ready_s, ready)

    def _ended(self, ask: Ask, record: RequestRecord) -> None:
        self._running -= 1
        now = self.client.now()
        if record.error in (None, failures.LEFT):
            self._fill_soon(now if record.done_s is None else record.done_s)
        else:
            self.client.loop.at(now + REST_S, partial(self._fill, now + REST_S))


class _Open(Drive):
    open_loop = True

    def __init__(self, client: Client, asks: Iterable[Ask]) -> None:
        super().__init__(client)
        self._asks: Iterator[Ask] = iter(asks)
        self._next: Ask | None = None
        self._waiting = 0

    def _begin(self) -> None:
        self._load()

    def _finished(self) -> bool:
        return self._next is None and self._waiting == 0 and self.client.in_flight == 0

    def _load(self) -> None:
        """Have one ask ready, with a timer for it."""
        self._next = next(self._asks, None)
        if self._next is not None:
            self.client.loop.at(self.started_s + self._next.at_s, self._due)

    def _due(self) -> None:
        ask = self._next
        if ask is None or self._over:
            return
        if self._waits(ask):
            self._waiting += 1
        else:
            self._send_at(ask, self.started_s + ask.at_s)
        self._load()

    def _send_at(self, ask: Ask, intended_s: float) -> None:
        self.client.watch.late.append(self.client.now() - intended_s)
        self._send(ask, intended_s)

    def _turn_ready(self, ask: Ask, ready_s: float) -> None:
        intended_s = max(ready_s, self.started_s + ask.at_s)

        def ready() -> None:
            self._waiting -= 1
            if not self._over:
                self._send_at(ask, intended_s)

        self.client.loop.at(intended_s, ready)

    def _ended(self, ask: Ask, record: RequestRecord) -> None:
        pass
