"""Lengths and mixes, drawn and read from a command line."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilocard.core.errors import UsageError
from kilocard.core.statistics import mean, percentile
from kilocard.workload.lengths import Empirical, Fixed, Length, Lognormal, Uniform, read_length
from kilocard.workload.mixes import Kind, Mix, read_mix


def drawn(length: Length, count: int = 20_000) -> list[int]:
    rng = Random(5)
    return [length.draw(rng) for _ in range(count)]


def test_uniform_reaches_both_ends() -> None:
    assert set(drawn(Uniform(3, 6), 500)) == {3, 4, 5, 6}
    assert Uniform(3, 6).mean == 4.5


@pytest.mark.parametrize(("middle", "p99"), [(1155, 4142), (343, 1120), (28, 252), (500, 500), (100, 1490)])
def test_lognormal_has_the_mean_and_the_p99_asked_for(middle: float, p99: float) -> None:
    found = drawn(Lognormal(middle, p99), 50_000)
    assert mean(found) == pytest.approx(middle, rel=0.08)
    assert percentile(found, 0.99) == pytest.approx(p99, rel=0.08)


def test_lognormal_stops_at_its_limit() -> None:
    assert max(drawn(Lognormal(1000, 8000, high=4096))) == 4096


def test_a_spread_that_no_lognormal_has_is_refused() -> None:
    with pytest.raises(UsageError, match=r"1 to 15\.0 times"):
        Lognormal(100, 1600)
    with pytest.raises(UsageError, match=r"1 to 15\.0 times"):
        Lognormal(100, 99)


def test_empirical_draws_what_was_seen_as_often() -> None:
    counts = Counter(drawn(Empirical.of([10, 10, 10, 90])))
    assert counts[90] / counts.total() == pytest.approx(0.25, abs=0.02)
    assert set(counts) == {10, 90}


@given(
    st.one_of(
        st.builds(Fixed, st.integers(1, 10**6)),
        st.builds(lambda low, more: Uniform(low, low + more), st.integers(1, 10**6), st.integers(0, 10**6)),
        st.builds(lambda middle, times: Lognormal(middle, middle * times), st.floats(1, 1e5), st.floats(1, 14.9)),
        st.builds(Empirical.of, st.lists(st.integers(1, 10**6), min_size=1)),
    ),
    st.integers(0, 2**64),
)
def test_a_length_is_a_whole_number_of_tokens(length: Length, seed: int) -> None:
    tokens = length.draw(Random(seed))
    assert isinstance(tokens, int)
    assert tokens >= 1


def test_lengths_from_a_command_line() -> None:
    assert read_length("512") == Fixed(512)
    assert read_length("256-1024") == read_length("256..1024") == Uniform(256, 1024)
    assert read_length("mean=800, p99=4000") == Lognormal(800, 4000)
    assert read_length("mean=800,p99=4000,max=8000") == Lognormal(800, 4000, 8000)


@pytest.mark.parametrize("text", ["", "0", "many", "9-3", "mean=5", "mean=5,p99=x", "mean=5,p99=9,min=3", "0-4", "1.5"])
def test_wrong_lengths_say_so(text: str) -> None:
    with pytest.raises(UsageError, match="length"):
        read_length(text)


def test_shares_of_a_mix() -> None:
    mix = Mix((Kind(Fixed(1), Fixed(1), 3), Kind(Fixed(9), Fixed(9), 1, tenant="batch")))
    rng = Random(1)
    counts = Counter(mix.draw(rng).tenant for _ in range(10_000))
    assert counts["batch"] / 10_000 == pytest.approx(0.25, abs=0.02)


def test_mix_from_a_command_line() -> None:
    assert read_mix("512/128") == Mix((Kind(Fixed(512), Fixed(128), 100),))
    assert read_mix("80% 512/128; 20% mean=6000,p99=20000/500-700") == Mix(
        (Kind(Fixed(512), Fixed(128), 80), Kind(Lognormal(6000, 20_000), Uniform(500, 700), 20))
    )


@pytest.mark.parametrize("text", ["", "512", "50% 1/1; 20% 2/2", "80% 1/1; 2/2", "0% 1/1; 100% 2/2", "1/2/3"])
def test_wrong_mixes_say_so(text: str) -> None:
    with pytest.raises(UsageError, match=r"mix|share"):
        read_mix(text)


def test_a_mix_needs_a_kind() -> None:
    with pytest.raises(UsageError, match="asks nothing"):
        Mix(())
