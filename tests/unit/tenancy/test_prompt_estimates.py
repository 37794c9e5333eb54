"""The estimate learns, and stays on the safe side."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from kilocard.tenancy.estimate import PromptEstimates


def test_before_anything_is_known_it_is_four_bytes_a_token() -> None:
    assert PromptEstimates().tokens("t", "m", 4000) == 1001


def test_it_covers_nearly_all_prompts_once_it_has_seen_some() -> None:
    rng = random.Random(7)
    estimates = PromptEstimates()
    low = over = 0
    for number in range(2000):
        size = rng.randint(5000, 15_000)
        real = int(size * rng.uniform(0.30, 0.40))  # denser than the first guess
        if number >= 200:
            guess = estimates.tokens("t", "m", size)
            low += guess < real
            over += guess > real * 1.5
        estimates.learn("t", "m", size, real)
    assert low / 1800 < 0.02
    assert over == 0


def test_sizes_models_and_tenants_are_learned_apart() -> None:
    estimates = PromptEstimates()
    estimates.learn("t", "m", 100, 90)  # a chat template around a short question
    assert estimates.tokens("t", "m", 100) > 50
    assert estimates.tokens("t", "m", 100_000) == 25_001
    assert estimates.tokens("t", "other", 100) == estimates.tokens("other", "m", 100) == 26


def test_one_absurd_count_does_not_stay_for_ever() -> None:
    estimates = PromptEstimates()
    estimates.learn("t", "m", 1000, 10**9)
    assert estimates.tokens("t", "m", 1000) <= 4001
    for _ in range(400):
        estimates.learn("t", "m", 1000, 250)
    assert estimates.tokens("t", "m", 1000) < 300


def test_an_estimate_that_stood_in_the_way_is_forgotten_quickly() -> None:
    """Pictures by URL: a few bytes that are thousands of tokens. Text of that size is none."""
    estimates = PromptEstimates()
    for _ in range(20):
        estimates.learn("t", "m", 1000, 3000)
    assert estimates.tokens("t", "m", 1000) > 3000
    for _ in range(4):
        estimates.learn("t", "m", 1000, 250, doubted=True)
    assert estimates.tokens("t", "m", 1000) < 500


@given(st.lists(st.tuples(st.integers(-1, 10**7), st.integers(-1, 10**9))), st.integers(0, 10**8))
def test_it_is_always_a_sane_number(seen: list[tuple[int, int]], size: int) -> None:
    estimates = PromptEstimates()
    for known, tokens in seen:
        estimates.learn("t", "m", known, tokens)
    assert 1 <= estimates.tokens("t", "m", size) <= size * 4 + 1
