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

#: equal parts of a window, for curves over time
STEPS = 60


@dataclass(frozen=True, slots=True)
class Delivery:
    """Counts within the window."""

    output_tokens: float
    completions: int
    prompt_tokens: int
    #: output tokens in each of STEPS equal parts
    steps: list[float]


def arrivals(record: RequestRecord) -> list[float]:
    """The moments at which tokens came."""
    return [] if record.first_s is None else list(accumulate(chain((record.first_s,), record.gaps_s)))


def delivered(point: Point) -> Delivery:
    """Of complete requests and those that were cut off; what a failed one delivered is of no use to anybody."""
    records = (*point.carried, *point.records)
    length = (point.ended_s - point.started_s) / STEPS
    edges = [*(point.started_s + length * step for step in range(STEPS)), point.ended_s]
    steps = tokens_between(records, edges)
    ended = [
        record
        for record in records
        if record.error is None and record.last_s is not None and point.started_s <= record.last_s <= point.ended_s
    ]
    return Delivery(sum(steps), len(ended), sum(record.input_tokens or 0 for record in ended), steps)


def tokens_between(records: Sequence[RequestRecord], edges: Sequence[float]) -> list[float]:
    """Output tokens delivered between each two edges; the first and the last edge belong to what is inside."""
    useful = [record for record in records if record.error in (None, CUT_OFF)]
    weight = tokens_per_arrival(useful)
    sums = [0.0] * (len(edges) - 1)
    for record in useful:
        moments = arrivals(record)
        each = record.output_tokens / len(moments) if record.output_tokens and moments else weight
        before = bisect_left(moments, edges[0])
        for step, edge in enumerate(edges[1:]):
            upto = bisect_right(moments, edge)
            sums[step] += each * (upto - before)
            before = upto
    return sums


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
