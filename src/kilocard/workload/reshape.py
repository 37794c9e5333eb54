"""Traces made fit for use: ticks spread out, scaled up, cut. Sessions stay whole; think times stay as they were."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby, pairwise
from random import Random

from kilocard.core.errors import UsageError
from kilocard.core.statistics import percentile
from kilocard.workload.request import WorkloadRequest
from kilocard.workload.trace import with_turns

#: arrivals on the same timestamp, on average, from which on the clock that stamped them was coarse
CROWDED = 2.0


def tick_s(requests: Sequence[WorkloadRequest]) -> float | None:
    """The tick of the clock that stamped the arrivals, if it was coarse: Mooncake's conversations come each 3 s.

    None when timestamps are mostly distinct, or all the same (a closed loop's).
    """
    counts = Counter(request.at_s for request in requests)
    if len(counts) < 3 or len(requests) < CROWDED * len(counts):
        return None
    times = sorted(counts)
    return percentile((after - before for before, after in pairwise(times)), 0.5)


def spread(requests: Sequence[WorkloadRequest], rng: Random, tick: float | None = None) -> list[WorkloadRequest]:
    """Spread the arrivals of each tick uniformly over it, in their order; unchanged when there is no tick.

    Without it every tick would begin with a burst that the real service never saw, and p99 would measure the clock.
    """
    tick = tick_s(requests) if tick is None else tick
    if tick is None:
        return list(requests)
    found: list[WorkloadRequest] = []
    for at_s, group in groupby(sorted(requests, key=_when), key=_when):
        members = list(group)
        offsets = sorted(rng.random() * tick for _ in members)
        found += [replace(each, at_s=at_s + offset) for each, offset in zip(members, offsets, strict=True)]
    # A clock that is a few milliseconds off can make two ticks overlap.
    found.sort(key=_when)
    return found


def scale(requests: Sequence[WorkloadRequest], times: float, rng: Random) -> list[WorkloadRequest]:
    """`times` as much traffic, by superposing copies that are shifted in time; a broken copy has some of the sessions.

    A copy has sessions and blocks of its own: other people with other documents. What is shifted past the end comes
    round to the start, by whole sessions. Gaps within a session stay: a person does not think faster because more
    people are there.
    """
    if not requests or times <= 0:
        raise UsageError(f"{len(requests)} requests {times:g} times: both must be more than 0")
    span = max(each.at_s for each in requests)
    ids = 1 + max((max(each.blocks) for each in requests if each.blocks), default=-1)
    whole, part = int(times), times - int(times)
    found: list[WorkloadRequest] = []
    for copy in range(whole + (part > 1e-9)):
        share = part if copy == whole else 1.0
        shift = rng.random() * span if copy else 0.0
        for members in _sessions(requests):
            if share == 1.0 or rng.random() < share:
                moved = (members[0].at_s + shift) % span - members[0].at_s if copy and span else 0.0
                found += (_copied(each, copy, moved, ids) for each in members)
    found.sort(key=_when)
    return found


def cut(requests: Iterable[WorkloadRequest], start_s: float, end_s: float) -> list[WorkloadRequest]:
    """What arrives from `start_s` on and before `end_s`, counted from `start_s`. Turns begin with 0 again."""
    if not 0 <= start_s < end_s:
        raise UsageError(f"from {start_s:g} s to {end_s:g} s is no stretch of time")
    inside = [replace(each, at_s=each.at_s - start_s) for each in requests if start_s <= each.at_s < end_s]
    return list(with_turns(inside))


def _copied(request: WorkloadRequest, copy: int, moved: float, ids: int) -> WorkloadRequest:
    if copy == 0:
        return request
    return replace(
        request,
        at_s=request.at_s + moved,
        session=None if request.session is None else f"{request.session}~{copy}",
        blocks=tuple(each + copy * ids for each in request.blocks),
        conversation=None if request.conversation is None else f"{request.conversation}~{copy}",
    )


def _sessions(requests: Sequence[WorkloadRequest]) -> Iterator[list[WorkloadRequest]]:
    """Requests that belong together; one without a session stands alone."""
    together: dict[str, list[WorkloadRequest]] = {}
    for request in requests:
        if request.session is None:
            yield [request]
        else:
            together.setdefault(request.session, []).append(request)
    yield from together.values()


def _when(request: WorkloadRequest) -> float:
    return request.at_s
