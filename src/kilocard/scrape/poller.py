"""Scrapes every replica once per interval: evenly spread, never two at once, slow ones less often.

One timer serves all replicas and all time-outs; each replica has one keep-alive connection and a request that was
made once. What a page says goes to `report`; a failed scrape reports None, which must never by itself stop routing
to that replica. Failures are logged once per cause, not once per second.
"""

from __future__ import annotations

import asyncio
import heapq
import random
import ssl as tls
from collections.abc import Callable, Collection, Mapping
from itertools import count

from kilocard.core.errors import UsageError
from kilocard.core.load import LoadSample
from kilocard.engines.base import MetricsPage
from kilocard.scrape.pace import Trouble, first_due, next_due, phase
from kilocard.scrape.replica import ReplicaScrape, Settings
from kilocard.scrape.status import ScrapeStatus

Report = Callable[[str, LoadSample | None], None]

#: the timer never fires more often than this (s): ten scrapes of a thousand share one wake-up at 1 Hz
TICK = 0.01
MAX_BYTES = 8 * 1024 * 1024


class Poller:
    """`report(replica, sample | None)` is called from the event loop after each scrape.

    `interval` and `timeout` are seconds; the time-out covers connecting, all pages tried and the last byte.
    `sample.at` is when the page was asked for, on the clock `now` (default: the running loop's).
    """

    def __init__(
        self,
        report: Report,
        *,
        interval: float = 1.0,
        timeout: float = 3.0,
        max_bytes: int = MAX_BYTES,
        rng: random.Random,
        now: Callable[[], float] | None = None,
        ssl: tls.SSLContext | None = None,
    ) -> None:
        if interval <= 0 or timeout <= 0:
            raise UsageError(f"scrape interval {interval:g} s and time-out {timeout:g} s must be above 0")
        self.report = report
        self._settings = Settings(interval, timeout, max_bytes, self.now, ssl)
        #: scrapes since the start, for metrics
        self.succeeded = 0
        self.failed = 0
        self._now = now  # None: the loop's, from start() on
        self._start_phase = rng.random()
        self._added = count()
        self._order = count()
        self._watched: dict[str, ReplicaScrape] = {}
        self._due: list[tuple[float, int, ReplicaScrape]] = []
        self._under_way: dict[ReplicaScrape, None] = {}  # in the order of their deadlines
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None

    # --- for the owner ---

    def add(self, replica: str, url: str, pages: tuple[MetricsPage, ...], models: Collection[str] = ()) -> None:
        """Scrape this replica from now on. With `models`, only series of those model names count.

        Repeating it changes nothing; another URL, other pages or other models start anew. Without pages there
        is nothing to scrape. Raises UsageError for a URL that is not http(s)://.
        """
        old = self._watched.get(replica)
        if old is not None:
            if (old.url, old.pages, old.models) == (url, pages, frozenset(models)):
                return
            self.remove(replica)
        if not pages:
            return
        watched = ReplicaScrape(
            self._settings, self._ended, replica, url, pages, models, phase(next(self._added), self._start_phase)
        )
        self._watched[replica] = watched
        if self._loop is not None:
            self._enqueue(watched, first_due(self.now(), self._settings.interval, watched.phase))

    def remove(self, replica: str) -> None:
        """Forget it: a scrape under way is dropped and nothing more is reported. Unknown ids are fine."""
        watched = self._watched.pop(replica, None)
        if watched is not None:
            self._under_way.pop(watched, None)
            watched.stop()

    def every(self, interval: float) -> None:
        """Another interval, in seconds, from each replica's next scrape on."""
        self._settings.interval = interval

    def start(self) -> None:
        """Begin, in the running event loop."""
        self._loop = asyncio.get_running_loop()
        if self._now is None:
            self._now = self._loop.time
        now = self.now()
        for watched in self._watched.values():
            self._enqueue(watched, first_due(now, self._settings.interval, watched.phase))

    async def close(self) -> None:
        """Stop and close all connections."""
        connecting = [w.connecting for w in self._watched.values() if w.connecting is not None]
        for replica in list(self._watched):
            self.remove(replica)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._loop = None
        self._due.clear()
        await asyncio.gather(*connecting, return_exceptions=True)
        await asyncio.sleep(0)  # lets the transports tell their sockets

    def status(self, replica: str) -> ScrapeStatus | None:
        watched = self._watched.get(replica)
        return watched.status if watched is not None else None

    def statuses(self) -> Mapping[str, ScrapeStatus]:
        return {replica: watched.status for replica, watched in self._watched.items()}

    def now(self) -> float:
        assert self._now is not None, "start() first"
        return self._now()

    # --- time ---

    def _enqueue(self, watched: ReplicaScrape, due: float) -> None:
        watched.due = due
        heapq.heappush(self._due, (due, next(self._order), watched))
        self._arm(due)

    def _arm(self, due: float) -> None:
        """Wake up at `due`, or TICK from now if that is later."""
        assert self._loop is not None
        if self._timer is not None:
            if self._timer_at <= due + TICK:
                return
            self._timer.cancel()
        now = self.now()
        self._timer_at = max(due, now + TICK)
        self._timer = self._loop.call_later(self._timer_at - now, self._tick)

    def _tick(self) -> None:
        self._timer = None
        now = self.now()
        while self._under_way:
            watched = next(iter(self._under_way))
            if watched.deadline > now:
                break
            watched.fail(f"no whole page within {self._settings.timeout:g} s", Trouble.SLOW)
        while self._due and self._due[0][0] <= now:
            watched = heapq.heappop(self._due)[2]
            if watched.running:
                self._under_way[watched] = None
                watched.begin(now)
        if self._due:
            self._arm(self._due[0][0])
        if self._under_way:
            self._arm(next(iter(self._under_way)).deadline)

    def _ended(self, watched: ReplicaScrape, sample: LoadSample | None, rest: float) -> None:
        """A scrape is over: the next one is put in line first, so that an error in `report` can't lose it."""
        del self._under_way[watched]
        self._enqueue(watched, next_due(watched.due, self.now(), self._settings.interval, rest))
        if sample is None:
            self.failed += 1
        else:
            self.succeeded += 1
        self.report(watched.replica, sample)
