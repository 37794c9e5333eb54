"""Open loop: does the server keep up with what is offered?

More arrivals than answers make a queue that grows, and then every latency is a measure of how long the run was. So the
label comes before the numbers. `overloaded`: answers fell behind arrivals, or more and more requests were in flight;
`backlogged`: it kept up, behind a queue that stood all the time; `stable`: neither.
"""

from __future__ import annotations

import math

from kilocard.bench.delivery import in_flight, mean_in_flight
from kilocard.bench.document import EngineSeen, Saturation
from kilocard.bench.point import Point
from kilocard.core.statistics import percentile

#: fewer answers than this share of the arrivals is falling behind
KEEPS_UP = 0.95
#: in flight grew when the last third has this share more than the first, and more than chance gives
GROWTH = 1.25


def saturation(point: Point, completions: int, engine: EngineSeen) -> Saturation | None:
    """None for a closed loop. `completions` are those within the window."""
    if point.concurrency is not None:
        return None
    window = point.ended_s - point.started_s
    spans = in_flight(point)
    third = window / 3
    first = mean_in_flight(spans, point.started_s, point.started_s + third)
    last = mean_in_flight(spans, point.ended_s - third, point.ended_s)

    def says(label: str, reason: str) -> Saturation:
        return Saturation(label=label, reason=reason, in_flight_first_third=first, in_flight_last_third=last)  # type: ignore[arg-type]  # one of the closed set, below

    offered = len(point.records)
    if offered < 20:
        return says("unknown", f"{offered} arrivals are too few to see a queue grow")
    # Arrivals by chance scatter the number in flight by about its square root.
    grows = last > GROWTH * first and last - first > 3 * math.sqrt(max(first, 1.0))
    answered = completions / offered
    # The generation itself, without the wait before it: a queue would make any window too short.
    working = [
        record.e2e_s - record.ttft_s
        for record in point.records
        if record.error is None and record.e2e_s is not None and record.ttft_s is not None
    ]
    if working and 3 * percentile(working, 0.5) > window:
        return says("unknown", f"a window of {window:.0f} s is too short: half of the answers ran for a third of it")
    growth = f"{first:.1f} requests were in flight in the first third of the window, {last:.1f} in the last"
    behind = answered < KEEPS_UP and offered - completions > 3 * math.sqrt(offered) and last > first * 1.05 + 1
    if grows and behind:
        return says("overloaded", f"only {answered:.0%} of the arrivals were answered within the window; {growth}")
    if grows:
        return says("overloaded", f"the queue grew: {growth}")
    running, waiting = engine.running_mean, engine.waiting_mean
    if running and waiting is not None and waiting > max(1, running / 4):
        return says("backlogged", f"{waiting:.1f} requests waited in the engine on average, {running:.1f} ran")
    if behind:
        return says("backlogged", f"{answered:.0%} of the arrivals were answered within the window; {growth}")
    return says("stable", f"{answered:.0%} of the arrivals were answered within the window; {growth}")
