"""The knee: where more load stops giving more throughput.

Closed loop, by diminishing returns: the smallest measured load from which on no larger one gives what it should, where
h times the load should give h^0.2 times the throughput: 15 % more for twice as much. That is steep enough to call a
smooth curve bent at about three quarters of its asymptote, and flat enough to let the noise of a run pass. Unlike
Kneedle (Satopää et al. 2011) the answer does not move with the end of the ladder, and a curve that never bends gets no
knee; unlike "90 % of the best" the best, which is the luckiest of the plateau, does not decide.
tests/unit/bench/test_knee_methods.py has all three against curves whose knee is known.

Open loop: a rate is held when 97 % of what was offered is answered. The knee is the highest measured rate that was
held; the capacity is the most that was answered at any.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from kilocard.bench.caveats import places
from kilocard.bench.curve import Load, closed, opened
from kilocard.bench.document import Knee, PointResult

#: throughput that grows with load to this power or less is not worth the load
WORTH = 0.2
#: the last load has to lie so far past the knee, or it was not seen
SEEN = 1.4
#: of the offered rate
HELD = 0.97
#: relative scatter that is assumed where nothing was repeated
ASSUMED_NOISE = 0.05
RESAMPLES = 200

CLOSED_METHOD = "diminishing returns: from the knee on, twice the load gives less than 15 % more output tokens/s"
OPEN_METHOD = "the highest measured rate of which 97 % was answered within the window"


def find_knee(points: Sequence[PointResult]) -> Knee:
    """Of a sweep over concurrency or, if there is none, over rates."""
    if loads := closed(points, doubtful=True):
        knee = _closed(loads)
    elif loads := opened(points, doubtful=True):
        knee = _opened(loads)
    else:
        says = "Neither a concurrency nor a rate was swept: there is no curve."
        return Knee(reached=False, method="none", says=says)
    doubtful = [point for load in loads for point in load.repeats if point.client.limited]
    if doubtful:
        why = f"Doubtful: the load tester was the limit at {places(doubtful)}"
        knee.confidence = f"{why}. {knee.confidence}" if knee.confidence else why
    return knee


def bend(loads: Sequence[float], throughput: Sequence[float]) -> float | None:
    """The load at the knee; None: not reached. Loads rise; throughput is above 0."""
    for place, (load, had) in enumerate(zip(loads, throughput, strict=True)):
        beyond = zip(loads[place + 1 :], throughput[place + 1 :], strict=True)
        if all(got <= had * (more / load) ** WORTH for more, got in beyond):
            return load if loads[-1] >= SEEN * load else None
    return None


def _closed(loads: Sequence[Load]) -> Knee:
    measured = [load for load in loads if load.tokens_per_s > 0]
    if not measured:
        return Knee(reached=False, method=CLOSED_METHOD, says="No load gave a single token: there is no curve.")
    at, got = [load.load for load in measured], [load.tokens_per_s for load in measured]
    knee = bend(at, got)
    agreement, confidence = _sure(measured, knee)
    best = max(got)
    if knee is None:
        last = f"{at[-1]:g} in flight gave {got[-1]:,.0f} output tokens/s"
        before = f", {at[-2]:g} gave {got[-2]:,.0f}" if len(at) > 1 else ""
        says = f"Not reached: {last}{before}. Go higher: {2 * at[-1]:g} and {4 * at[-1]:g}."
        return Knee(
            reached=False, method=CLOSED_METHOD, capacity=best, agreement=agreement, confidence=confidence, says=says
        )
    place = at.index(knee)
    low, high = at[max(0, place - 1)], at[place + 1]
    says = f"At {knee:g} in flight: {got[place]:,.0f} output tokens/s, {got[place] / best:.0%} of the best."
    if got[-1] < 0.9 * best:
        says += f" Past it throughput falls: {got[-1]:,.0f} at {at[-1]:g}."
    if place == 0:
        says += f" It is the smallest load measured, so the knee may lie below {knee:g}."
    return Knee(
        concurrency=int(knee), reached=True, method=CLOSED_METHOD, between=[low, high], output_tokens_per_s=got[place],
        capacity=best, agreement=agreement, confidence=confidence, says=says,
    )  # fmt: skip


def _sure(loads: Sequence[Load], knee: float | None) -> tuple[float | None, str]:
    """How often the knee comes out the same when repeats are drawn anew; with one each, when 5 % of noise is added."""
    if len(loads) == 1:
        return None, "One load is no curve"
    rng = random.Random(0)  # noqa: S311  # resampling, no secret; a report must not change when it is made twice
    at = [load.load for load in loads]
    repeats = [[point.output_tokens_per_s for point in load.repeats] for load in loads]
    repeated = all(len(each) > 1 for each in repeats)
    found: dict[float | None, int] = {}
    for _ in range(RESAMPLES):
        if repeated:
            drawn = [sum(rng.choices(each, k=len(each))) / len(each) for each in repeats]
        else:
            drawn = [sum(each) / len(each) * math.exp(rng.gauss(0, ASSUMED_NOISE)) for each in repeats]
        answer = bend(at, drawn)
        found[answer] = found.get(answer, 0) + 1
    same = found.get(knee, 0) / RESAMPLES
    how = (
        f"resamples of the {min(map(len, repeats))} repeats"
        if repeated
        else "draws with 5 % of noise (assumed, since no load was repeated)"
    )
    others = sorted((answer for answer in found if answer != knee), key=lambda answer: -found[answer])
    text = f"The same in {same:.0%} of {how}"
    if others and found[others[0]] >= 0.05 * RESAMPLES:
        other = "none is reached" if others[0] is None else f"it is {others[0]:g}"
        text += f"; in {found[others[0]] / RESAMPLES:.0%} {other}"
    return same, text


def held(load: Load) -> bool:
    """Was this rate answered? A few requests on their way at the window's end are no lack."""
    if any(point.saturation is not None and point.saturation.label == "overloaded" for point in load.repeats):
        return False
    asked = sum(point.requests for point in load.repeats)
    flying = sum(point.in_flight_mean for point in load.repeats)
    slack = min(0.1, 3 * math.sqrt(flying) / asked) if asked else 0.0
    return load.requests_per_s >= (HELD - slack) * load.offered_per_s


def _opened(loads: Sequence[Load]) -> Knee:
    good = [load for load in loads if held(load)]
    missed = [load for load in loads if not held(load)]
    capacity = max(load.requests_per_s for load in loads)
    repeats = min(len(load.repeats) for load in loads)
    confidence = f"{repeats} run{'s' if repeats > 1 else ''} a rate; held and not held by every one of them together"
    if not good:
        says = f"Not even {loads[0].load:g} requests/s was held: at most {capacity:.3g} were answered. Go lower."
        return Knee(reached=True, method=OPEN_METHOD, capacity=capacity, confidence=confidence, says=says)
    best = good[-1]
    above = [load for load in missed if load.load > best.load]
    if not above:
        says = f"Not reached: {best.load:g} requests/s were held. Go higher: {2 * best.load:g}."
        return Knee(reached=False, method=OPEN_METHOD, capacity=capacity, confidence=confidence, says=says)
    high = max(best.load, min(above[0].load, capacity))
    says = f"{best.load:g} requests/s were held, {above[0].load:g} were not: at most {capacity:.3g} were answered."
    return Knee(
        rate_per_s=best.load, reached=True, method=OPEN_METHOD, between=[best.load, high],
        output_tokens_per_s=best.tokens_per_s, capacity=capacity, confidence=confidence, says=says,
    )  # fmt: skip
