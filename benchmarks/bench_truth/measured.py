"""What one load tester said of one run, in kilocard's words (docs/bench.md defines them)."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

#: seconds; a tool that needs longer for its next request is none
MOST_S = 0.1


@dataclass(frozen=True)
class Measured:
    """Means, except where the name says otherwise. Times are seconds."""

    tool: str
    requests: int
    output_tokens_per_s: float
    ttft_s: float
    ttft_p50_s: float
    #: (end to end − TTFT) / (tokens − 1), whatever the tool calls it
    tpot_s: float
    e2e_s: float
    #: by the tool's own count, for one request: two tools that count differently did not do the same work
    input_tokens: float
    output_tokens: float
    #: from the last token of one request to the clock's start for the next one in its slot: the tool's own time
    turnaround_s: float
    #: while all slots were busy: without the end, when there are no more requests to take a free one. NaN: not counted,
    #: in files of earlier versions
    full_tokens_per_s: float = math.nan

    @property
    def ttft_of_slot_s(self) -> float:
        """From the moment that the slot was free: what a tool takes before its clock starts is in it."""
        return self.turnaround_s + self.ttft_s


@dataclass(frozen=True)
class Answered:
    """What a tool says of one request. Times are seconds."""

    began_s: float
    ttft_s: float
    tpot_s: float
    e2e_s: float
    input_tokens: float
    output_tokens: float

    @property
    def last_s(self) -> float:
        """When its last token came."""
        return self.began_s + self.ttft_s + self.tpot_s * (self.output_tokens - 1)

    def tokens_until(self, at_s: float) -> float:
        """Its tokens that had come by then: the first after TTFT, the others at even distances."""
        first = self.began_s + self.ttft_s
        if at_s < first:
            return 0.0
        return min(self.output_tokens, 1 + ((at_s - first) / self.tpot_s if self.tpot_s else self.output_tokens))


def means(tool: str, output_tokens_per_s: float, requests: Sequence[Answered], slots: int) -> Measured:
    """Of a tool's own values for each request, without the first of each slot: those start at one moment on an idle
    server, which no later one does, and `kilocard bench` does not count them either. The throughput is the tool's."""
    counted = sorted(requests, key=lambda each: each.began_s)[slots:]

    def mean(name: str) -> float:
        return statistics.fmean(getattr(each, name) for each in counted)

    return Measured(
        tool,
        len(counted),
        output_tokens_per_s,
        mean("ttft_s"),
        statistics.median(each.ttft_s for each in counted),
        mean("tpot_s"),
        mean("e2e_s"),
        mean("input_tokens"),
        mean("output_tokens"),
        turnaround([each.began_s for each in counted], [each.last_s for each in requests]),
        while_full(requests, slots),
    )


def while_full(requests: Sequence[Answered], slots: int) -> float:
    """Output tokens a second from the first start after those of all slots to the last one. After it a tool has no
    request left for a slot that frees, and with answers of many lengths the batch empties slowly. `kilocard bench`
    stops there by itself."""
    begin, end = (sorted(each.began_s for each in requests)[place] for place in (slots, -1))
    if end <= begin:
        return math.nan
    return sum(each.tokens_until(end) - each.tokens_until(begin) for each in requests) / (end - begin)


def turnaround(began: Iterable[float], last: Iterable[float]) -> float:
    """Mean time from a last token to the start of the request that took its slot: the first start after it that no
    earlier token has, within MOST_S."""
    ends = deque(sorted(last))
    found = []
    for start in sorted(began):
        while ends and ends[0] < start - MOST_S:
            ends.popleft()
        if ends and ends[0] <= start:
            found.append(start - ends.popleft())
    return statistics.fmean(found) if found else math.nan


class Lost(Exception):
    """A tool lost requests: what it says is of another load than the others'. Now and then GuideLLM 0.8.1 does."""
