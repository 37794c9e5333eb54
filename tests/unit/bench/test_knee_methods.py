"""Why the knee is found by diminishing returns: three methods on curves whose knee is known.

Kneedle: the point farthest above the line from first to last, on a logarithmic load axis. Nine tenths: the smallest
load with 90 % of the best throughput. Both always answer, even for a curve that never bends.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
from tests.curves import CPU_VLLM, saturating

from kilocard.bench.knee import bend

Method = Callable[[list[int], list[float]], float | None]
LADDERS = {
    "doublings": [1, 2, 4, 8, 16, 32, 64, 128],
    "fourfold": [2, 8, 32, 128],
    "dense": [1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128],
    "few": [4, 8, 16, 32],
}


def kneedle(loads: list[int], curve: list[float]) -> float:
    x = [math.log(load) for load in loads]
    low, high = min(curve), max(curve)
    above = [(y - low) / (high - low) - (at - x[0]) / (x[-1] - x[0]) for at, y in zip(x, curve, strict=True)]
    return loads[above.index(max(above))]


def nine_tenths(loads: list[int], curve: list[float]) -> float:
    return next(load for load, y in zip(loads, curve, strict=True) if y >= 0.9 * max(curve))


METHODS: dict[str, Method] = {"diminishing returns": bend, "kneedle": kneedle, "nine tenths": nine_tenths}


def share_right(method: Method, noise: float) -> float:
    """Over ladders, bends, plateaus that stay and that fall; noise is that of a mean of two repeats."""
    rng = random.Random(7)
    right = asked = 0
    for loads in LADDERS.values():
        for slots in (8, 16, 32):
            if slots not in loads[1:-1]:
                continue
            for sharpness in (0.1, 0.8, 2.0):
                for fall in (0.0, 0.35):
                    for _ in range(20):
                        curve = saturating(loads, slots, sharpness, fall, noise, rng)
                        right += method(loads, curve) == slots
                        asked += 1
    return right / asked


def false_knees(method: Method) -> int:
    """Curves that never bend within the ladder."""
    curves = [(loads, saturating(loads, 10_000, sharpness)) for loads in LADDERS.values() for sharpness in (0.0, 5.0)]
    return sum(method(loads, curve) is not None for loads, curve in curves)


def test_without_noise_the_knee_is_always_found() -> None:
    assert share_right(bend, 0.0) == 1.0


@pytest.mark.parametrize("noise", [0.02, 0.05])
def test_with_noise_no_method_finds_it_more_often(noise: float) -> None:
    shares = {name: share_right(method, noise) for name, method in METHODS.items()}
    assert shares["diminishing returns"] >= 0.85
    assert shares["diminishing returns"] >= max(shares.values()) - 0.02, shares


def test_only_diminishing_returns_sees_that_there_is_no_knee() -> None:
    assert false_knees(bend) == 0
    assert false_knees(kneedle) == false_knees(nine_tenths) == 2 * len(LADDERS)


def test_the_answer_does_not_move_when_the_ladder_goes_on() -> None:
    """A smooth curve without any slots: Kneedle's answer is an artefact of where the ladder ends."""
    short, long = LADDERS["doublings"], [*LADDERS["doublings"], 256, 512, 1024]
    assert bend(short, saturating(short, 10_000, 1000.0)) == bend(long, saturating(long, 10_000, 1000.0))
    assert kneedle(short, saturating(short, 10_000, 1000.0)) != kneedle(long, saturating(long, 10_000, 1000.0))


def test_a_real_vllm_bends_at_its_eight_slots() -> None:
    loads, curve = list(CPU_VLLM), [sum(pair) / 2 for pair in CPU_VLLM.values()]
    assert bend(loads, curve) == 8
    assert bend(loads[:4], curve[:4]) is None, "up to 8 it had not bent yet"
