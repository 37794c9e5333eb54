"""Generated workloads."""

from __future__ import annotations

from random import Random

import pytest

from kilocard.workload.arrivals import AtOnce, Constant, Poisson
from kilocard.workload.generate import generate
from kilocard.workload.lengths import Fixed, Uniform
from kilocard.workload.mixes import Kind, Mix


def test_as_many_as_asked_for() -> None:
    asked = list(generate(AtOnce(), Mix.of(Fixed(100), Fixed(20)), Random(1), requests=3))
    assert [(each.at_s, each.input_tokens, each.output_tokens) for each in asked] == [(0, 100, 20)] * 3


def test_as_long_as_asked_for() -> None:
    asked = list(generate(Constant(2), Mix.of(Fixed(1), Fixed(1)), Random(1), duration_s=5))
    assert [each.at_s for each in asked] == [at / 2 for at in range(10)]


def test_the_same_seed_asks_the_same_and_another_rate_asks_the_same_lengths() -> None:
    mix = Mix.of(Uniform(1, 1000), Uniform(1, 1000))
    slow, again, fast = (list(generate(Poisson(rate), mix, Random(7), requests=50)) for rate in (1, 1, 9))
    assert slow == again
    assert [each.input_tokens for each in slow] == [each.input_tokens for each in fast]
    assert fast[-1].at_s == pytest.approx(slow[-1].at_s / 9)


def test_a_kind_gives_its_names() -> None:
    kind = Kind(Fixed(1), Fixed(1), tenant="a", model="m", priority="low")
    (one,) = generate(AtOnce(), Mix((kind,)), Random(1), requests=1)
    assert (one.tenant, one.model, one.priority, one.session) == ("a", "m", "low", None)
