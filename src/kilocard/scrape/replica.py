"""The scraping of one replica: its connection, where it stands in a scrape, and how that went."""

from __future__ import annotations

import asyncio
import logging
import ssl as tls
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from kilocard.core.load import LoadSample
from kilocard.engines.base import MetricsPage
from kilocard.net.target import parse_target, request_bytes
from kilocard.scrape.framing import Head
from kilocard.scrape.line import Buffers, Line
from kilocard.scrape.pace import Trouble, rest_after_failure, rest_after_success
from kilocard.scrape.pages import Ask, PageSearch, Unreadable
from kilocard.scrape.status import ScrapeStatus

#: connections are kept between scrapes only if the engine (5 s) won't close them meanwhile
KEEP_ALIVE = 3.0
#: no gzip: compressing 50 KB costs the engine more than sending it
HEADERS = (("Accept", "text/plain"),)

log = logging.getLogger("kilocard.scrape")


@dataclass(slots=True)
class Settings:
    """What all replicas of one poller share."""

    interval: float
    timeout: float
    max_bytes: int
    now: Callable[[], float]
    ssl: tls.SSLContext | None
    buffers: Buffers = field(default_factory=Buffers)


class ReplicaScrape:
    """One replica: its connection, where it stands in its scrape, and how that went."""

    def __init__(
        self,
        settings: Settings,
        ended: Callable[[ReplicaScrape, LoadSample | None, float], None],
        replica: str,
        url: str,
        pages: tuple[MetricsPage, ...],
        models: Collection[str],
        share: float,
    ) -> None:
        self.replica = replica
        self.url = url
        self.pages = pages
        self.models = frozenset(models)
        self.phase = share
        self.status = ScrapeStatus(url)
        self.due = 0.0
        self.deadline = 0.0
        self.running = True
        self.connecting: asyncio.Task[None] | None = None
        self._settings = settings
        self._ended = ended
        self._search = PageSearch(pages, self.models)
        self._keep = settings.interval <= KEEP_ALIVE
        targets = [parse_target(url.rstrip("/") + page.path) for page in pages]
        self._place = targets[0]
        self._requests = [request_bytes(t, "GET", HEADERS, b"", keep_alive=self._keep) for t in targets]
        self._index = 0
        self._began = self._asked_at = 0.0
        self._line: Line | None = None
        self._may_retry = False

    def begin(self, now: float) -> None:
        """Start a scrape: `ended(self, sample | None, rest)` follows, unless stopped before."""
        self.deadline = now + self._settings.timeout
        self._began = now
        self._ask(self._search.begin().page)

    def stop(self) -> None:
        self.running = False
        self._drop()

    # --- asking ---

    def _ask(self, index: int) -> None:
        self._index = index
        line = self._line
        if line is not None and line.is_open:
            # an idle connection may have died this moment: then the same request gets a second, new connection
            self._may_retry = True
            self._asked_at = self._settings.now()
            line.ask(self._requests[index])
        else:
            self._may_retry = False
            self.connecting = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        settings, place = self._settings, self._place
        context = None
        if place.scheme == "https":
            if settings.ssl is None:
                settings.ssl = tls.create_default_context()
            context = settings.ssl
        try:
            _, line = await asyncio.get_running_loop().create_connection(
                lambda: Line(self, settings.buffers, settings.max_bytes), place.host, place.port, ssl=context
            )
        except (OSError, UnicodeError) as error:  # refused, unreachable, unknown or impossible host, TLS
            self.connecting = None
            if self.running:
                self.fail(f"can't connect: {getattr(error, 'strerror', None) or error}", Trouble.UNREACHABLE)
            return
        self.connecting = None
        self._line = line
        if line.is_open:
            self._asked_at = settings.now()
            line.ask(self._requests[self._index])
        else:
            self.fail("closed the connection without an answer", Trouble.UNREACHABLE)

    # --- hearing (scrape.line.Listener) ---

    def answered(self, line: Line, head: Head, body: bytes) -> None:
        if not line.is_open:
            self._line = None
        found = self._search.answer(self._index, head.status, body, self._asked_at)
        if isinstance(found, LoadSample):
            now = self._settings.now()
            duration = now - self._began
            matched = self._search.matched
            assert matched is not None
            news = self.status.good(now, duration, self.pages[matched].path)
            if news is not None:
                log.info("replica %s: %s", self.replica, news)
            if not self._keep:
                self._drop()
            self._ended(self, found, rest_after_success(self._settings.interval, duration))
        elif isinstance(found, Ask):
            self._ask(found.page)
        else:
            assert isinstance(found, Unreadable)
            self.fail(found.reason, Trouble.UNREADABLE)

    def broke(self, line: Line, reason: str, *, unheard: bool, too_large: bool) -> None:
        self._line = None
        if unheard and self._may_retry:
            self._ask(self._index)
        else:
            path = self.pages[self._index].path
            self.fail(f"{path}: {reason}", Trouble.SLOW if too_large else Trouble.UNREACHABLE)

    def closed(self, line: Line) -> None:
        if line is self._line:
            self._line = None

    # --- ending ---

    def fail(self, reason: str, trouble: Trouble) -> None:
        if trouble is not Trouble.UNREADABLE or not self._keep:
            self._drop()
        now = self._settings.now()
        news = self.status.bad(now, now - self._began, reason)
        if news is not None:
            log.warning("replica %s: %s", self.replica, news)
        self._ended(self, None, rest_after_failure(self._settings.interval, self.status.failures, trouble))

    def _drop(self) -> None:
        if self.connecting is not None:
            self.connecting.cancel()
            self.connecting = None
        if self._line is not None:
            self._line.abort()
            self._line = None
