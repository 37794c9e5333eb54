"""Gateways' decision logs as one workload: the same requests at the same times, to be simulated with another policy,
another size, or other faults."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from kilocard.core.errors import UsageError
from kilocard.core.prefix import CHUNK, Prefix, key_blocks
from kilocard.dispatch.config import PRIORITIES
from kilocard.dispatch.events import Abandoned, Arrived, Finished
from kilocard.dispatch.record import KINDS, from_list
from kilocard.dispatch.replay import Reading, read_header
from kilocard.workload.request import WorkloadRequest
from kilocard.workload.trace import with_turns

#: kinds of events that tell of a request's life; the others are about replicas
_LIFE = ("arrived", "finished", "abandoned")


@dataclass(slots=True)
class _Life:
    """One request. Seconds since 1970, also its own at_s."""

    request: WorkloadRequest
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
    heard = _Heard()
    # In order of time: a request may come in one file of a gateway and end in the next.
    for log in sorted(map(_Log, logs), key=lambda log: (log.began_s, log.seed)):
        heard.read(log)
    if not heard.lives:
        raise UsageError("a decision log without a request in it")
    return _workload(sorted(heard.lives.values(), key=lambda life: life.request.at_s))


class _Log:
    """One file, of which the header is read. `seed` tells a gateway's start from others: its files have the same."""

    def __init__(self, lines: Iterable[Any]) -> None:
        self.lines = iter(lines)
        with Reading():
            first: Any = next(self.lines, None)
            self.seed = read_header(first).seed
            self.began_s = float(first["time"])
            #: seconds from the clock of its events to 1970's; None: an older log, whose first event came as it began
            self.behind_s: float | None = self.began_s - first["now"] if "now" in first else None


class _Heard:
    def __init__(self) -> None:
        #: by the gateway's seed and the request's number there
        self.lives: dict[tuple[int, int], _Life] = {}
        self._ids: dict[int, int] = {}
        self._names: dict[int, str] = {}

    def read(self, log: _Log) -> None:
        seed, behind = log.seed, log.behind_s
        with Reading() as at:
            for at.number, line in enumerate(log.lines, 2):
                if isinstance(line, dict):
                    continue  # a checkpoint: a gateway's state, no traffic
                (kind, now, *_), *answer = line
                if behind is None:
                    behind = log.began_s - now
                if kind in _LIFE or kind not in KINDS:
                    event: Any = from_list(line[0])
                    if isinstance(event, Arrived):
                        self.lives[seed, event.request] = _Life(self._asked(event, behind + now))
                    else:
                        self._ended(seed, event.request, behind + now, event)
                for each in answer:
                    if each[0] == "refuse":
                        self._ended(seed, each[1], behind + now, None)

    def _asked(self, asked: Arrived, at_s: float) -> WorkloadRequest:
        prefix = asked.prefix or Prefix(asked.prompt_tokens, ())
        return WorkloadRequest(
            at_s,
            max(1, asked.prompt_tokens),
            1,
            session=self._name(prefix.session),
            blocks=key_blocks(prefix.keys, self._ids),
            block_tokens=CHUNK if prefix.keys else 0,
            conversation=self._name(prefix.home),
            tenant=asked.tenant or None,
            model=asked.model,
            priority=PRIORITIES[asked.priority],
            max_tokens=asked.output_tokens,
        )

    def _name(self, key: int) -> str | None:
        return self._names.setdefault(key, f"{key:x}") if key else None

    def _ended(self, seed: int, request: int, at_s: float, event: Finished | Abandoned | None) -> None:
        """None: it was refused."""
        life = self.lives.get((seed, request))
        if life is None:
            return  # it had begun before the log
        life.end_s = at_s
        if isinstance(event, Finished):
            life.output_tokens = event.output_tokens or None
        elif event is not None:
            life.left_s = at_s


def _workload(lives: Sequence[_Life]) -> list[WorkloadRequest]:
    start = lives[0].request.at_s
    known = [life.output_tokens for life in lives if life.output_tokens is not None]
    usual = max(1, round(sum(known) / len(known))) if known else 1
    pauses = dict(_pauses(lives))
    requests = []
    for place, life in enumerate(lives):
        asked, pause = life.request, pauses.get(place)
        requests.append(
            replace(
                asked,
                at_s=asked.at_s - start,
                output_tokens=life.output_tokens or usual,
                waits=asked.session is None or pause is not None,
                think_s=pause or 0.0,
                cancel_after_s=None if life.left_s is None else max(0.0, life.left_s - asked.at_s),
            )
        )
    return list(with_turns(requests))


def _pauses(lives: Sequence[_Life]) -> Iterator[tuple[int, float]]:
    """(place, seconds from the end of the turn before) of requests in sessions whose turns followed each other."""
    sessions: dict[str, list[int]] = {}
    for place, life in enumerate(lives):
        if life.request.session is not None:
            sessions.setdefault(life.request.session, []).append(place)
    for places in sessions.values():
        gaps = [_gap(lives[one], lives[other]) for one, other in pairwise(places)]
        if all(gap is not None and gap >= 0 for gap in gaps):
            yield places[0], 0.0
            yield from ((place, gap) for place, gap in zip(places[1:], gaps, strict=True) if gap is not None)


def _gap(one: _Life, other: _Life) -> float | None:
    return None if one.end_s is None else other.request.at_s - one.end_s
