"""What a workload looks like in a dozen numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from kilocard.core.statistics import deviation, mean, percentiles
from kilocard.workload.blocks import prefix_hits
from kilocard.workload.request import WorkloadRequest


@dataclass(frozen=True, slots=True)
class Lengths:
    """Tokens."""

    mean: float
    p50: float
    p90: float
    p99: float
    max: int


@dataclass(frozen=True, slots=True)
class Summary:
    requests: int
    #: from the first arrival to the last; rates are requests a second
    span_s: float
    rate: float
    #: rates of the fullest and the emptiest whole minute; None when there is no whole minute
    busiest_minute: float | None
    quietest_minute: float | None
    empty_minutes: int
    #: coefficient of variation of the gaps between arrivals: 1 is Poisson, above comes in bursts
    gap_cv: float | None
    input: Lengths
    output: Lengths
    #: requests without a session are none
    sessions: int
    mean_turns: float | None
    #: of all blocks asked for, those that a prefix cache without end would find; None: no blocks are known
    prefix_share: float | None


def summary(requests: Sequence[WorkloadRequest]) -> Summary:
    """Of requests in order of at_s, one at least."""
    times = [each.at_s for each in requests]
    span = times[-1] - times[0]
    gaps = [after - before for before, after in pairwise(times)]
    middle = mean(gaps) if gaps else 0.0
    minutes = Counter(int((at_s - times[0]) // 60) for at_s in times)
    whole = [minutes[minute] for minute in range(int(span // 60))]
    turns = Counter(each.session for each in requests if each.session is not None)
    found, asked = prefix_hits(requests)
    return Summary(
        requests=len(requests),
        span_s=span,
        rate=len(requests) / span if span else 0.0,
        busiest_minute=max(whole) / 60 if whole else None,
        quietest_minute=min((count for count in whole if count), default=0) / 60 if whole else None,
        empty_minutes=whole.count(0),
        gap_cv=deviation(gaps) / middle if middle else None,
        input=_lengths(each.input_tokens for each in requests),
        output=_lengths(each.output_tokens for each in requests),
        sessions=len(turns),
        mean_turns=turns.total() / len(turns) if turns else None,
        prefix_share=found / asked if asked else None,
    )


def _lengths(tokens: Iterable[int]) -> Lengths:
    seen = list(tokens)
    p50, p90, p99 = percentiles(seen, (0.5, 0.9, 0.99))
    return Lengths(mean(seen), p50, p90, p99, max(seen))
