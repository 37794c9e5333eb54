"""Records as calibration wants them: when each token came, what the engine had to compute."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

from kilocard.bench.record import CUT_OFF, RequestRecord
from kilocard.core.statistics import percentile
from kilocard.perf.seen_steps import Stream

#: tokens that made no text of their own (half of a character) leave a gap twice as long. More of them than this share,
#: and tokens came several at a time: the gaps are no steps
MOST_MISSING = 0.05
_NEIGHBOURS = 8
_TWICE = 1.6


def stream(record: RequestRecord) -> Stream | None:
    """None for a request that never got a token, unless it was cut off while it waited for one."""
    prompt = record.asked_input if record.input_tokens is None else record.input_tokens
    cached = min(record.cached_tokens or 0, prompt - 1)
    if record.first_s is None:
        return Stream(record.sent_s, prompt, cached) if record.error == CUT_OFF else None
    times = list(accumulate(record.gaps_s, initial=record.first_s))
    # Of a request that was cut off or broke, no usage tells the count.
    missing = (record.output_tokens or 0) - len(times) if record.error is None else 0
    exact = missing <= MOST_MISSING * len(times)
    if missing > 0:
        times = _filled(times, missing) if exact else _evenly(times, len(times) + missing)
    return Stream(record.sent_s, prompt, cached, tuple(times), exact)


def _filled(times: Sequence[float], missing: int) -> list[float]:
    """Put the tokens that did not show into the gaps that are about twice as long as those around them."""
    gaps = [after - before for before, after in pairwise(times)]
    long: list[tuple[float, int]] = []
    for place, gap in enumerate(gaps):
        around = gaps[max(0, place - _NEIGHBOURS) : place + _NEIGHBOURS + 1]
        usual = percentile(around, 0.5)
        if gap > _TWICE * usual:
            long.append((abs(gap - 2 * usual), place))
    found = list(times)
    for _, place in sorted(long)[:missing]:
        found.append((times[place] + times[place + 1]) / 2)
    return sorted(found)


def _evenly(times: Sequence[float], tokens: int) -> list[float]:
    """So many times between the first and the last arrival."""
    first, last = times[0], times[-1]
    return [first + (last - first) * place / (tokens - 1) for place in range(tokens)]
