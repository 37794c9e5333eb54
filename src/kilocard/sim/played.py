"""One engine under the load of a load tester, on virtual time: closed loop or given arrivals, token by token.

What calibration is judged by: the same requests as in a measured point, played on the fitted profile.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import NamedTuple, Unpack

from kilocard.perf.profile import Profile
from kilocard.perf.seen_steps import Stream
from kilocard.sim.engine import Engine, StepResult
from kilocard.sim.limits import Limits
from kilocard.sim.step import SECOND

#: from an answer's end to the next request's sending in a closed loop, and between the first requests. Not 0: a client
#: needs a moment, and the engine's next step has begun by then
TURNAROUND_S = 0.001


class Asked(NamedTuple):
    """Tokens; `at_s` only counts where arrivals are given."""

    prompt: int
    output: int
    cached: int = 0
    at_s: float = 0.0


@dataclass(slots=True)
class Played:
    """Seconds since the start."""

    asked: Asked
    sent_s: float
    tokens_s: list[float] = field(default_factory=list)
    #: when it was thrown out of the batch
    preempted_s: list[float] = field(default_factory=list)

    @property
    def stream(self) -> Stream:
        """As a client would see it."""
        return Stream(self.sent_s, self.asked.prompt, self.asked.cached, tuple(self.tokens_s))


def play(
    profile: Profile,
    requests: Sequence[Asked],
    *,
    concurrency: int | None = None,
    turnaround_s: float = TURNAROUND_S,
    **limits: Unpack[Limits],
) -> list[Played]:
    """All requests to their ends, in order of sending. `concurrency`: a closed loop; None: sent at their `at_s`.

    The profile's `request_s` passes before a request reaches the engine. An engine that schedules ahead (`steps_ahead`)
    does so here. Raises EngineError for a request that the engine can never hold.
    """
    limits = {"async_scheduling": profile.steps_ahead >= 1, **limits}
    engine = _TokenByToken(profile, **limits)
    if concurrency is None:
        sent = [asked.at_s for asked in requests]
    else:
        sent = [place * turnaround_s / 10 for place in range(min(concurrency, len(requests)))]
    coming = [_Coming(_on_clock(sent_s + profile.request_s), place, sent_s) for place, sent_s in enumerate(sent)]
    heapify(coming)
    following = len(coming)
    played: dict[str, Played] = {}
    wake_s = math.inf
    while (now := min(wake_s, coming[0].at_s if coming else math.inf)) < math.inf:
        for event in engine.advance(now):
            if event.kind == "preempted":
                played[event.request_id].preempted_s.append(event.at_s)
            elif event.kind == "finished" and concurrency is not None and following < len(requests):
                sent_s = event.at_s + turnaround_s
                heappush(coming, _Coming(_on_clock(sent_s + profile.request_s), following, sent_s))
                following += 1
        while coming and coming[0].at_s <= now:
            _, place, sent_s = heappop(coming)
            asked = requests[place]
            engine.add(str(place), asked.prompt, asked.output, now, cached_tokens=asked.cached)
            played[str(place)] = Played(asked, sent_s)
        wake_s = engine.next_at()
    for name, times in engine.tokens_s.items():
        played[name].tokens_s = times
    return list(played.values())


class _Coming(NamedTuple):
    """A request on its way: when it reaches the engine, its place among the requests, when it was sent."""

    at_s: float
    place: int
    sent_s: float


def _on_clock(at_s: float) -> float:
    """The same time as the engine's clock shows it: what comes at one moment has to come at the same one for it."""
    return round(at_s * SECOND) / SECOND


class _TokenByToken(Engine):
    """Writes down when each token comes out, by request."""

    def __init__(self, profile: Profile, **limits: Unpack[Limits]) -> None:
        super().__init__(profile, record=False, **limits)  # compiled, the limits would be taken for `record`
        self.tokens_s: dict[str, list[float]] = {}

    def _step(self, now: float) -> StepResult:
        step = super()._step(now)
        at_s = (self._now + step.duration_ps) / SECOND
        for name, _ in step.emitted:
            self.tokens_s.setdefault(name, []).append(at_s)
        return step
