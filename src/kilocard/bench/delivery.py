"""Tokens and requests by the moment they happened: what lies within a window, and what was in flight in it.

Throughput is what was delivered within the window, by whichever request, over the window's wall time. To count whole
requests by their start or end would move work over the window's edges: with answers of 10 s and a window of 60 s,
leaving out what is cut off at the end loses a sixth.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, chain

from kilocard.bench.point import Point
from kilocard.bench.record import CUT_OFF, RequestRecord


@dataclass(frozen=True, slots=True)
class Delivery:
    """Counts within the window; `token_at_s` and `token_weight` are all arrivals within it, in order."""

    output_tokens: float
    completions: int
    prompt_tokens: int
    token_at_s: list[float]
    token_weight: list[float]


def arrivals(record: RequestRecord) -> list[float]:
    """The moments at which tokens came."""
    return [] if record.first_s is None else list(accumulate(chain((record.first_s,), record.gaps_s)))


def delivered(point: Point) -> Delivery:
    """Of complete requests and those that were cut off; what a failed one delivered is of no use to anybody."""
    records = [record for record in (*point.carried, *point.records) if record.error in (None, CUT_OFF)]
    weight = tokens_per_arrival(records)
    tokens: list[tuple[float, float]] = []
    completions = prompts = 0
    for record in records:
        moments = arrivals(record)
        each = record.output_tokens / len(moments) if record.output_tokens and moments else weight
        first, last = bisect_left(moments, point.started_s), bisect_right(moments, point.ended_s)
        tokens += [(moment, each) for moment in moments[first:last]]
        if record.error is None and record.last_s is not None and point.started_s <= record.last_s <= point.ended_s:
            completions += 1
            prompts += record.input_tokens or 0
    tokens.sort()
    total = sum(each for _, each in tokens)
    return Delivery(total, completions, prompts, [at for at, _ in tokens], [each for _, each in tokens])


def tokens_per_arrival(records: Sequence[RequestRecord]) -> float:
    """By those whose usage is known; 1 where no usage is."""
    known = [record for record in records if record.output_tokens and record.first_s is not None]
    count = sum(1 + len(record.gaps_s) for record in known)
    return sum(record.output_tokens or 0 for record in known) / count if count else 1.0


def in_flight(point: Point) -> list[tuple[float, float]]:
    """(from, to) of each request, cut at the window's edges."""
    spans = []
    for record in (*point.carried, *point.records):
        end = record.done_s if record.done_s is not None else record.last_s
        if record.error == CUT_OFF:
            end = point.ended_s
        # waiting for the client is waiting: from the intended moment on
        begin, end = max(record.intended_s, point.started_s), min(end or record.sent_s, point.ended_s)
        if end > begin:
            spans.append((begin, end))
    return spans


def mean_in_flight(spans: Sequence[tuple[float, float]], begin: float, end: float) -> float:
    """The mean over time of how many spans are open between two moments."""
    if end <= begin:
        return 0.0
    return sum(max(0.0, min(stop, end) - max(start, begin)) for start, stop in spans) / (end - begin)
