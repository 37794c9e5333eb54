"""A cluster's traffic made of a small trace: superposed windows of it, each with prompts of its own."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from random import Random

from kilocard.workload.request import WorkloadRequest


def superposed(requests: Sequence[WorkloadRequest], rate: float, seconds: float, rng: Random) -> list[WorkloadRequest]:
    """`rate` requests a second for so many seconds: as many copies of the trace as that takes, each seen through a
    window of its own. The same as kilocard.workload.reshape.scale and cut, without copying what is cut off.

    `requests` are in order and have no sessions. Windows begin in even steps over the trace plus a common random one,
    so that together they see its busy and its quiet minutes alike, and the rate is what was asked for. Each copy's
    blocks are its own: other people with other documents. Of the last copy a share of the requests is taken.
    """
    times = [each.at_s for each in requests]
    span = times[-1] * (1.0 + 1.0 / len(times))
    copies = rate * span / len(times)
    whole = ceil(copies)
    ids = 1 + max((max(each.blocks) for each in requests if each.blocks), default=-1)
    begin = rng.random()
    found: list[WorkloadRequest] = []
    for copy in range(whole):
        share = min(1.0, copies - copy)
        start = span * ((copy / whole + begin) % 1.0)
        place, lap = bisect_left(times, start), 0.0
        while True:
            if place == len(times):
                place, lap = 0, lap + span
            at = times[place] + lap - start
            if at >= seconds:
                break
            if share == 1.0 or rng.random() < share:
                blocks = tuple(each + copy * ids for each in requests[place].blocks)
                found.append(replace(requests[place], at_s=at, blocks=blocks))
            place += 1
    found.sort(key=lambda each: each.at_s)
    return found
