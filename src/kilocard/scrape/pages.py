"""Which of the pages that an engine may have is the one. Pure: says what to ask and what an answer means."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from kilocard.core.load import LoadSample
from kilocard.engines.base import MetricsPage
from kilocard.metrics.exposition_error import NotExposition
from kilocard.metrics.fast import Layout, extract
from kilocard.metrics.load import says_nothing
from kilocard.scrape.sniff import Body, excerpt, sniff

NO_NAMES = "has none of the metric names that this engine is known for"


class Ask(NamedTuple):
    """Get this page next: an index into the search's pages."""

    page: int


class Unreadable(NamedTuple):
    """No page gave a reading. `reason` is for people, one line, and the same as long as the cause is."""

    reason: str


class PageSearch:
    """Tries the pages in order until one matches and stays with it. A page that no longer matches is looked for again.

    One scrape is: `begin()`, then `answer()` for each page asked, until that returns something else than Ask.
    """

    def __init__(self, pages: tuple[MetricsPage, ...], models: Collection[str] = ()) -> None:
        assert pages, "a replica without a metrics page is not scraped"
        self.pages = pages
        self.matched: int | None = None
        self._models = models
        self._layout = Layout()
        self._tried: dict[int, str] = {}

    def begin(self) -> Ask:
        self._tried.clear()
        return Ask(self.matched or 0)

    def answer(self, index: int, status: int, body: bytes, at: float) -> LoadSample | Ask | Unreadable:
        """What page `index`, asked at `at`, said. `sample.at` is `at`: the page is at least as fresh as that."""
        if status == 200 and index == self.matched:
            sample = self._read(index, body, at)
            if isinstance(sample, LoadSample):
                return sample
        if status >= 500 and index == self.matched:
            # an overloaded engine, not another engine: the page will be back
            return Unreadable(f"{self.pages[index].path} answered {status}")
        self.matched = None
        path = self.pages[index].path
        why = _objection(status, body)
        for other, page in enumerate(self.pages):
            if page.path != path or other in self._tried:
                continue
            found = why or self._read(other, body, at)
            if isinstance(found, LoadSample):
                self.matched = other
                return found
            self._tried[other] = found
        for other in range(len(self.pages)):
            if other not in self._tried:
                return Ask(other)
        reasons = {self.pages[tried].path: reason for tried, reason in self._tried.items()}
        return Unreadable("; ".join(f"{path} {reason}" for path, reason in reasons.items()))

    def _read(self, index: int, body: bytes, at: float) -> LoadSample | str:
        """The reading, or why there is none."""
        if index != self.matched:
            self._layout = Layout()
        try:
            sample = extract(body, self.pages[index].dialect, at, self._models, self._layout)
        except NotExposition as error:
            return f"is {error.what}, not Prometheus text: {excerpt(body)}"
        return NO_NAMES if says_nothing(sample) else sample


def _objection(status: int, body: bytes) -> str | None:
    if status != 200:
        return f"answered {status}"
    kind = sniff(body)
    if kind is Body.TEXT:
        return None
    if kind is Body.EMPTY:
        return "is empty"
    return f"is {kind.value}, not Prometheus text: {excerpt(body)}"
