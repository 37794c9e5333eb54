"""Whom a fault hits, and when it is over."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kilocard.emulator.failure import Refused
from kilocard.emulator.faults import NO_FAULT, Fault, Faults, Kind


def faults(fault: Fault) -> Faults:
    one = Faults(random.Random(1))
    one.set(fault)
    return one


def test_none_hits_nobody() -> None:
    assert faults(NO_FAULT).hit() is None


def test_a_count_ends_the_fault() -> None:
    one = faults(Fault(Kind.ERROR, count=2))
    assert [one.hit() is not None for _ in range(4)] == [True, True, False, False]
    assert one.fault.kind is Kind.NONE


def test_a_share_hits_about_that_many() -> None:
    one = faults(Fault(Kind.ERROR, share=0.3))
    hits = sum(one.hit() is not None for _ in range(1000))
    assert 250 < hits < 350
    assert one.hits == hits


def test_health_checks_are_hit_only_if_told_so() -> None:
    assert faults(Fault(Kind.HANG)).hit(control=True) is None
    assert faults(Fault(Kind.HANG, scope="all")).hit(control=True) is not None


def test_lying_health_in_both_directions() -> None:
    plain, inverted = faults(Fault(Kind.LIE_HEALTH)), faults(Fault(Kind.LIE_HEALTH, invert=True))
    assert (plain.hit() is not None, plain.says_ill) == (True, False)
    assert (inverted.hit() is not None, inverted.says_ill) == (False, True)


@pytest.mark.parametrize(
    "wrong",
    [
        {"factor": 0},
        {"status": 200},
        {"after_chunks": -1},
        {"share": 1.5},
        {"count": 0},
        {"duration_s": 0},
        {"scope": "some"},
    ],
)
def test_parameters_that_make_no_sense(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(Refused) as caught:
        Fault(Kind.ERROR, **wrong).check()
    assert caught.value.param == name


def test_refuse_needs_an_end() -> None:
    with pytest.raises(Refused, match="duration_s"):
        Fault(Kind.REFUSE).check()
    Fault(Kind.REFUSE, duration_s=1).check()
