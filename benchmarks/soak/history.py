"""What was done to the gateway, and from when to when: the excuses of a run."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Span:
    """`until` is infinite while it lasts. Times are this process's clock."""

    what: str
    since: float
    until: float = float("inf")


@dataclass
class History:
    """Spans by what they are, and what went wrong while they were made."""

    spans: list[Span] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)

    def begin(self, what: str, now: float, until: float = float("inf")) -> Span:
        span = Span(what, now, until)
        self.spans.append(span)
        self.done[what] += 1
        return span

    def times(self, what: str) -> list[float]:
        """When each of that kind began."""
        return [span.since for span in self.spans if span.what == what]

    def began_at(self, what: str, now: float, after: float) -> float:
        """Since when it had been there at `now`, or less than `after` seconds before; `now` if it was not."""
        return min(
            (span.since for span in self.spans if span.what == what and span.since <= now <= span.until + after),
            default=now,
        )

    def began(self, what: str, since: float, until: float) -> bool:
        return any(span.what == what and since <= span.since <= until for span in self.spans)

    def felt(self, what: str, since: float, until: float, after: float = 0.0) -> bool:
        """Was it there between, or less than `after` seconds before?"""
        return any(span.what == what and span.since <= until and span.until + after >= since for span in self.spans)
