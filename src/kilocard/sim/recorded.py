"""Gateways' decision logs as one workload: the same requests at the same times, to be simulated with another policy,
another size, or other faults."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from kilocard.core.errors import UsageError
from kilocard.core.prefix import CHUNK, key_blocks
from kilocard.dispatch.config import PRIORITIES
from kilocard.dispatch.events import Abandoned, Arrived, Finished
from kilocard.dispatch.record import KINDS, from_list
from kilocard.dispatch.replay import Reading, read_header
from kilocard.workload.request import WorkloadRequest
from kilocard.workload.trace import with_turns

#: kinds of events that tell of a request's life; the others are about replicas
_LIFE = ("arrived", "finished", "abandoned")

#: of a gateway's start, and of a request there: a log's files are parts of the same
Id = tuple[int, int]


@dataclass(slots=True)
class _Life:
    """Seconds since 1970."""

    asked: Arrived
    at_s: float
    output_tokens: int | None = None
    end_s: float | None = None
    left_s: float | None = None


def recorded_requests(*logs: Iterable[Any]) -> list[WorkloadRequest]:
    """The lines of each log → requests in order of arrival, the first at 0 s. Raises UsageError for what is no log.

    Logs are of several gateways or workers, or the files of one; their headers say how their clocks compare.

    An answer whose length is not known (it failed, or the log ends before it) takes the mean of the others; a client
    that left leaves again after the same time. Where hashes of prompts were recorded, blocks are equal where these
    were. A session that a header named has its turns wait for each other as they did then, unless they overlapped.
    """
    lives: dict[Id, _Life] = {}
    ends: list[tuple[Id, float, Finished | Abandoned | None]] = []
    for lines in logs:
        _hear(lines, lives, ends)
    for id, at_s, event in ends:
        life = lives.get(id)  # None: it had begun before the log
        if life is not None:
            life.end_s = at_s
            if isinstance(event, Finished):
                life.output_tokens = event.output_tokens or None
            elif event is not None:
                life.left_s = at_s
    if not lives:
        raise UsageError("a decision log without a request in it")
    return _workload(sorted(lives.values(), key=lambda life: life.at_s))


def _hear(lines: Iterable[Any], lives: dict[Id, _Life], ends: list[tuple[Id, float, Any]]) -> None:
    """One file: who came, and how requests ended."""
    rest = iter(lines)
    with Reading() as at:
        first: Any = next(rest, None)
        seed = read_header(first).seed
        behind: float | None = first["time"] - first["now"] if "now" in first else None
        for at.number, line in enumerate(rest, 2):
            if isinstance(line, dict):
                continue  # a checkpoint: a gateway's state, no traffic
            (kind, now, *_), *answer = line
            if behind is None:  # an older log: its first event came when it was begun
                behind = first["time"] - now
            if kind in _LIFE or kind not in KINDS:
                event: Any = from_list(line[0])
                if isinstance(event, Arrived):
                    lives[seed, event.request] = _Life(event, behind + now)
                else:
                    ends.append(((seed, event.request), behind + now, event))
            ends += (((seed, each[1]), behind + now, None) for each in answer if each[0] == "refuse")


def _workload(lives: Sequence[_Life]) -> list[WorkloadRequest]:
    start = lives[0].at_s
    known = [life.output_tokens for life in lives if life.output_tokens is not None]
    usual = max(1, round(sum(known) / len(known))) if known else 1
    pauses = dict(_pauses(lives))
    ids: dict[int, int] = {}
    requests = []
    for place, life in enumerate(lives):
        asked = life.asked
        request = WorkloadRequest(
            life.at_s - start,
            max(1, asked.prompt_tokens),
            life.output_tokens or usual,
            tenant=asked.tenant or None,
            model=asked.model,
            priority=PRIORITIES[asked.priority],
            max_tokens=asked.output_tokens,
            cancel_after_s=None if life.left_s is None else max(0.0, life.left_s - life.at_s),
        )
        prefix = asked.prefix
        if prefix is not None:
            pause = pauses.get(place)
            request = replace(
                request,
                blocks=key_blocks(prefix.keys, ids),
                block_tokens=CHUNK if prefix.keys else 0,
                conversation=f"{prefix.home:x}" if prefix.home else None,
                session=f"{prefix.session:x}" if prefix.session else None,
                waits=not prefix.session or pause is not None,
                think_s=pause or 0.0,
            )
        requests.append(request)
    return list(with_turns(requests))


def _pauses(lives: Sequence[_Life]) -> Iterator[tuple[int, float]]:
    """(place, seconds from the end of the turn before) of requests in sessions whose turns followed each other."""
    sessions: dict[int, list[int]] = {}
    for place, life in enumerate(lives):
        if life.asked.prefix is not None and life.asked.prefix.session:
            sessions.setdefault(life.asked.prefix.session, []).append(place)
    for places in sessions.values():
        gaps = [_gap(lives[one], lives[other]) for one, other in pairwise(places)]
        if all(gap is not None and gap >= 0 for gap in gaps):
            yield places[0], 0.0
            yield from ((place, gap) for place, gap in zip(places[1:], gaps, strict=True) if gap is not None)


def _gap(one: _Life, other: _Life) -> float | None:
    return None if one.end_s is None else other.at_s - one.end_s
