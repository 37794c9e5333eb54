"""What is known of the scraping of one replica, and what is worth a line in the log. Pure."""

from __future__ import annotations

from dataclasses import dataclass

#: seconds between two log lines about one replica, however its state flaps
QUIET = 60.0


@dataclass(slots=True)
class ScrapeStatus:
    """Times are seconds on the poller's clock; None: not yet."""

    url: str
    #: path of the page that matched
    page: str | None = None
    last_ok: float | None = None
    #: how long the last scrape took, good or bad
    duration: float | None = None
    #: failures in a row; 0 after a good scrape
    failures: int = 0
    #: the present trouble; None while scrapes are good
    error: str | None = None
    #: since when
    error_since: float | None = None
    _told: str | None = None
    _told_at: float = float("-inf")

    def good(self, now: float, duration: float, page: str) -> str | None:
        """A page was read. Returns a line for the log, or None."""
        self.page, self.last_ok, self.duration = page, now, duration
        self.failures, self.error, self.error_since = 0, None, None
        if self._told is None:
            return None
        self._told = None
        return f"{self.url}{page}: metrics are read again"

    def bad(self, now: float, duration: float, error: str) -> str | None:
        """A scrape failed. Returns a line for the log, once per cause and not more often than once in QUIET s."""
        self.duration = duration
        self.failures += 1
        if self.error is None:
            self.error_since = now
        self.error = error
        if error == self._told or now - self._told_at < QUIET:
            return None
        self._told, self._told_at = error, now
        return f"{self.url}: no metrics ({error}); own in-flight counts are used, routing goes on"
