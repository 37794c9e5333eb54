"""Does an engine schedule ahead? Counted in the steps that a request waits beside a stream that runs.

A scheduler that works when a step is over takes a request in at the end of the running step; its first token comes
out of the next one. One that works a step ahead has planned that step already: the first token comes a step later.

    stream A   ──●─────●─────●─────●──    each ● a token, so the end of a step
    request        ↑         ○            sent during a step, first token at the second end: 0 steps ahead
    request        ↑               ○      at the third end: 1 step ahead
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence

from kilocard.perf.seen_steps import Stream

#: requests of a point that are looked at, spread evenly over it
MOST = 300
#: counts that are needed to say anything
LEAST = 20
#: of the counts, the share that have to agree
AGREE = 0.5


def steps_ahead(points: Sequence[Sequence[Stream]], *, request_s: float, budget: int) -> int | None:
    """Steps that are scheduled when a request arrives, beside the one that runs. None: the loads do not show it.

    `request_s`: a request's way to the engine. `budget`: max-num-batched-tokens; a longer prompt takes several steps.
    Where requests wait for a slot the counts are many different ones, so the most frequent one is of those that do not.
    """
    counts: Counter[int] = Counter()
    for streams in points:
        whole = [each for each in streams if each.exact and len(each.tokens_s) > 1]
        for stream in whole[:: 1 + len(whole) // MOST]:
            if stream.prompt - stream.cached <= budget / 2:
                counts.update(_ends(stream, stream.sent_s + request_s, whole))
    usual = counts.most_common(1)
    if not usual or sum(counts.values()) < LEAST or usual[0][1] < AGREE * sum(counts.values()):
        return None
    return max(0, usual[0][0] - 2)


def _ends(stream: Stream, arrived_s: float, streams: Sequence[Stream]) -> list[int]:
    """How many steps ended from its arrival to its first token, by a stream that ran all the while; empty: none did."""
    first_s = stream.tokens_s[0]
    for beside in streams:
        times = beside.tokens_s
        if times[0] < arrived_s and first_s < times[-1]:
            after = bisect_right(times, first_s)
            # the token nearest to it came out of the same step
            last = after if times[after] - first_s < first_s - times[after - 1] else after - 1
            return [last + 1 - bisect_right(times, arrived_s)]
    return []
