"""How far one run's numbers would scatter: a bootstrap over blocks of time.

Requests near each other in time share batches, queues and preemptions, so to draw them one by one (the plain bootstrap)
makes intervals that are too narrow. Whole blocks are drawn instead (Künsch 1989; non-overlapping as in Carlstein 1986),
each several answers long, so that what depends on each other stays together. It knows nothing of what changes from one
run to the next: the machine, its neighbours, the server's start.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from kilocard.bench.delivery import tokens_between
from kilocard.bench.record import RequestRecord
from kilocard.core import statistics

#: fewer say too little about how much they differ
LEAST, MOST = 8, 40
#: lengths of the median answer in a block
ANSWERS_LONG = 3.0
#: values of one metric that are sorted and counted in a resample; more are thinned, evenly by rank
VALUES = 2000

Value = Callable[[RequestRecord], float | None]


@dataclass(frozen=True, slots=True)
class Blocks:
    """One window cut into pieces of equal length. Requests belong to the block that they ended (or were due) in."""

    seconds: float
    records: tuple[tuple[RequestRecord, ...], ...]
    #: delivered within each
    tokens: tuple[float, ...]


def cut(
    records: Sequence[RequestRecord], carried: Sequence[RequestRecord], started_s: float, window_s: float
) -> Blocks | None:
    """None when the window is too short for blocks that are longer than its answers."""
    whole = [record for record in records if record.error is None and record.last_s is not None]
    if not whole:
        return None
    typical = statistics.percentile([(record.last_s or 0.0) - record.sent_s for record in whole], 0.5)
    count = min(MOST, int(window_s / max(ANSWERS_LONG * typical, 1e-6)))
    if count < LEAST:
        return None
    length = window_s / count
    edges = [started_s + length * place for place in range(count + 1)]
    groups: list[list[RequestRecord]] = [[] for _ in range(count)]
    for record in whole:
        # an open loop's request may end past the window that it was due in
        moment = record.last_s if record.last_s is not None and record.last_s <= edges[-1] else record.intended_s
        groups[min(count - 1, max(0, bisect_right(edges, moment) - 1))].append(record)
    return Blocks(length, tuple(map(tuple, groups)), tuple(tokens_between([*records, *carried], edges)))


def throughput(blocks: Blocks, rng: random.Random, draws: int) -> list[float]:
    """Output tokens/s of `draws` resamples."""
    count = len(blocks.tokens)
    return [sum(rng.choices(blocks.tokens, k=count)) / (count * blocks.seconds) for _ in range(draws)]


def percentile(blocks: Blocks, value: Value, share: float, rng: random.Random, draws: int) -> list[float]:
    """A percentile of `draws` resamples; empty where nothing has the value."""
    pairs = sorted(
        (v, place) for place, group in enumerate(blocks.records) for r in group if (v := value(r)) is not None
    )
    if not pairs:
        return []
    step = max(1, len(pairs) // VALUES)
    pairs = pairs[step // 2 :: step]
    count = len(blocks.records)
    found = []
    for _ in range(draws):
        times = [0] * count
        for place in rng.choices(range(count), k=count):
            times[place] += 1
        sums = list(accumulate(times[place] for _, place in pairs))
        if sums[-1]:
            found.append(pairs[bisect_right(sums, share * (sums[-1] - 1))][0])
    return found
