"""One engine under the load of a load tester, on virtual time: closed loop or given arrivals, token by token.

What calibration is judged by: the same requests as in a measured point, played on the fitted profile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import NamedTuple

from kilocard.perf.profile import Profile
from kilocard.sim.engine import Engine

#: from an answer's end to the next request's arrival in a closed loop, and between the first requests. Not 0: a client
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


def play(
    profile: Profile,
    requests: Sequence[Asked],
    *,
    concurrency: int | None = None,
    turnaround_s: float = TURNAROUND_S,
) -> list[Played]:
    """All requests to their ends, in order of sending. `concurrency`: a closed loop; None: sent at their `at_s`.

    Raises EngineError for a request that the engine can never hold.
    """
    engine = Engine(profile)
    if concurrency is None:
        coming = [(asked.at_s, place) for place, asked in enumerate(requests)]
    else:
        coming = [(place * turnaround_s / 10, place) for place in range(min(concurrency, len(requests)))]
    coming.sort()
    following = len(coming)
    played: dict[str, Played] = {}
    now = 0.0
    while coming or not engine.idle:
        if engine.idle and coming:
            now = max(now, coming[0][0])
        while coming and coming[0][0] <= now:
            sent_s, place = heappop(coming)
            asked = requests[place]
            engine.add(str(place), asked.prompt, asked.output, now, cached_tokens=asked.cached)
            played[str(place)] = Played(asked, sent_s)
        step = engine.step(now)
        if step is None:
            continue
        now += step.duration_s
        for name, _ in step.emitted:
            played[name].tokens_s.append(now)
        for _ in step.finished:
            if concurrency is not None and following < len(requests):
                heappush(coming, (now + turnaround_s, following))
                following += 1
    return list(played.values())
