"""The error for a body that should have been a metrics page and is not."""

from __future__ import annotations

from kilocard.core.errors import EngineError

#: how much of the body the message shows
SHOWN = 60


class NotExposition(EngineError):
    """The body is not Prometheus or OpenMetrics text. The message holds the body's first 60 bytes.

    Every scrape of such a page fails in the same way: show it once, not each second.
    """

    default_code = "not_prometheus_text"

    def __init__(self, what: str, body: bytes) -> None:
        shown = body[:SHOWN].decode("utf-8", "replace")
        super().__init__(f"metrics page is {what}, not Prometheus text; it begins with {shown!r}")
        self.what = what
