"""Prompt lengths without a tokenizer: the generator asks, these tests answer as some server's tokenizer would."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilocard.bench.calibration import MOST_QUESTIONS, TOLERANCE, Calibration, Questions, calibrate, correct
from kilocard.bench.words import WORDS, Text

Count = Callable[[str], int]


def answer(questions: Questions, count: Count) -> tuple[Calibration, int]:
    """What comes out, and how many counts it took."""
    asked = 0
    text = next(questions)
    while True:
        asked += 1
        try:
            text = questions.send(count(text))
        except StopIteration as done:
            return done.value, asked


def test_words_are_of_one_kind() -> None:
    assert len(set(WORDS)) == len(WORDS) > 200
    assert {len(word) for word in WORDS} == {3}
    assert all(word.isascii() and word.islower() for word in WORDS)


def test_where_each_word_is_a_token_three_counts_are_enough() -> None:
    found, asked = answer(calibrate(Random(1)), lambda text: 37 + len(text.split()))
    assert (found.overhead, found.tokens_per_word, found.exact, asked) == (37, 1.0, True, 3)
    assert found.words == WORDS
    assert found.words_for(1000) == 963
    assert found.shortest == 38


def test_a_server_that_takes_four_bytes_for_a_token_is_exact_too() -> None:
    found, _ = answer(calibrate(Random(1)), lambda text: -(-len(text) // 4))
    assert (found.overhead, found.tokens_per_word) == (0, 1.0)


@given(bad=st.sets(st.sampled_from(WORDS), max_size=12), overhead=st.integers(0, 200), seed=st.integers(0, 2**32))
def test_words_that_are_several_tokens_are_sorted_out(bad: set[str], overhead: int, seed: int) -> None:
    def count(text: str) -> int:
        return overhead + sum(2 if word in bad else 1 for word in text.split())

    found, asked = answer(calibrate(Random(seed)), count)
    assert asked <= MOST_QUESTIONS + 4
    if found.tokens_per_word == 1.0:
        assert not bad & set(found.words)
        assert found.overhead == overhead
    text = Text(found.words, Random(seed)).make(found.words_for(2000), Random(seed))
    assert abs(count(text) - 2000) <= TOLERANCE * 2000


def test_a_tokenizer_of_single_bytes_has_a_mean_cost() -> None:
    found, asked = answer(calibrate(Random(3)), lambda text: 12 + len(text))
    assert not found.exact
    assert found.tokens_per_word == pytest.approx(4.0, abs=0.05)
    assert asked <= MOST_QUESTIONS + 4
    found, _ = answer(correct(found, 1000, Random(4)), lambda text: 12 + len(text))
    got = 12 + len(" ".join(Random(5).choices(found.words, k=found.words_for(1000))))
    assert abs(got - 1000) <= TOLERANCE * 1000


def test_a_prompt_that_comes_out_wrong_is_corrected() -> None:
    """The template grew by 9 tokens (a date, a system prompt) since the calibration."""
    stale = Calibration(WORDS, 1.0, 20)
    found, asked = answer(correct(stale, 300, Random(1)), lambda text: 29 + len(text.split()))
    assert (found.overhead, asked) == (29, 2)
    assert not found.exact


def test_a_length_below_the_template_is_not_looked_at() -> None:
    stale = Calibration(WORDS, 1.0, 20)
    with pytest.raises(StopIteration):
        next(correct(stale, 20, Random(1)))
    assert stale.words_for(5) == 1
