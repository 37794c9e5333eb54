"""Does the cluster keep up? A word, so that good percentiles of an overloaded cluster are not taken for good news.

Percentiles are of requests that were answered, and a run ends: an overloaded cluster looks better the shorter it is
watched. So the word comes from the arrivals' time alone: what had come, and what of it had left.
"""

from __future__ import annotations

from dataclasses import dataclass

from kilocard.sim.collector import FAILED, NOT_ASKED, REJECTED, Collector

#: of the requests that come in the second half of the arrivals' time, so many pile up: more than noise
GROWING = 0.05
#: and so many times the root of the arrivals, which is how far chance alone carries a queue
NOISE = 3.0
#: requests that the gateway turned away: more are no accident
TURNED_AWAY = 0.01


@dataclass(frozen=True, slots=True)
class Saturation:
    """`word`: "stable"; "overloaded": more comes than leaves, or is turned away; "too_short" to tell."""

    word: str
    #: requests that came in the second half, and by how many those without a first token grew meanwhile
    arrivals: int
    growth: int


#: fewer arrivals in the second half tell nothing
FEWEST = 20


def saturation(results: Collector, window: float) -> Saturation:
    """`window`: time of the last arrival."""
    middle = window / 2
    came = grew = asked = turned = 0
    for place, at in enumerate(results.arrived_s):
        if results.ends[place] == NOT_ASKED:
            continue
        asked += 1
        turned += results.ends[place] in (REJECTED, FAILED)
        # It waits until its first token, or until it ends without one. Those that run are no backlog: their number
        # grows in a healthy cluster too, while it fills.
        begun = results.first_s[place]
        if begun != begun:
            begun = results.end_s[place]
        # NaN, of what never ended, compares false
        grew += not begun <= window
        grew -= at <= middle and not begun <= middle
        came += at > middle
    if came < FEWEST:
        return Saturation("too_short", came, grew)
    piled = grew > GROWING * came and grew > NOISE * came**0.5
    return Saturation("overloaded" if piled or turned > TURNED_AWAY * asked else "stable", came, grew)
