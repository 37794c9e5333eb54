"""What one asks the ledger, and the lines that it answers with. Days are UTC."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

DAY = 86_400
#: what a report may be broken down by
DIMENSIONS = ("day", "tenant", "model", "pool")


class Question(NamedTuple):
    """Which requests, by when they ended, and how they are summed up."""

    by: tuple[str, ...]
    #: Unix seconds, inclusive; None: from the beginning
    since: float | None = None
    #: Unix seconds, exclusive; None: to the end
    until: float | None = None
    tenant: str | None = None
    model: str | None = None


class Line(NamedTuple):
    """The sums of one group. `group` has a value for each of Question.by."""

    group: tuple[str, ...]
    requests: int
    #: of them: neither ok nor left by their client
    errors: int
    #: of them: with token counts that are partly our guess
    estimated: int
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    #: seconds, over the streams that had a first token, and how many they were
    ttft_sum: float
    ttft_count: int

    @property
    def mean_ttft(self) -> float | None:
        return self.ttft_sum / self.ttft_count if self.ttft_count else None


class Parts(NamedTuple):
    """A time span as whole days, which the daily totals know, and edges, for which single records are read."""

    #: days since 1970 from `first` up to, not with, `last`; None: no bound
    first: int | None
    last: int | None
    #: Unix seconds, [from, to)
    edges: tuple[tuple[float, float], ...]


def parts(since: float | None, until: float | None) -> Parts:
    """Together they cover the span once."""
    first = None if since is None else int(-(-since // DAY))
    last = None if until is None else int(until // DAY)
    if first is not None and last is not None and first > last:  # within one day
        assert since is not None and until is not None
        return Parts(first, first, ((since, until),) if since < until else ())
    edges = []
    if since is not None and first is not None and since < first * DAY:
        edges.append((since, float(first * DAY)))
    if until is not None and last is not None and last * DAY < until:
        edges.append((float(last * DAY), until))
    return Parts(first, last, tuple(edges))


def total(lines: Iterable[Line]) -> Line:
    """All of them in one, with an empty group."""
    sums = [0, 0, 0, 0, 0, 0, 0.0, 0]
    for line in lines:
        for place, value in enumerate(line[1:]):
            sums[place] += value
    return Line((), *sums)  # type: ignore[arg-type]  # one is a float, at its place
