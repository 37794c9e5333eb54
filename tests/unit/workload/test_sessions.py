"""Conversations."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilocard.core.errors import UsageError
from kilocard.workload.arrivals import Constant, Poisson
from kilocard.workload.blocks import prefix_hits
from kilocard.workload.lengths import Fixed, Uniform
from kilocard.workload.request import WorkloadRequest
from kilocard.workload.sessions import Chat, sessions


def by_session(requests: list[WorkloadRequest]) -> dict[str, list[WorkloadRequest]]:
    found: dict[str, list[WorkloadRequest]] = defaultdict(list)
    for each in requests:
        assert each.session is not None
        found[each.session].append(each)
    return found


def test_history_grows_by_question_and_answer() -> None:
    chat = Chat(Fixed(20), Fixed(30), Fixed(3), think_s=0, system_tokens=100)
    asked = list(sessions(chat, Constant(1), Random(1), number=1))
    assert [each.input_tokens for each in asked] == [120, 170, 220]
    assert [each.turn for each in asked] == [0, 1, 2]


def test_system_prompt_is_shared_and_what_is_said_is_not() -> None:
    chat = Chat(Fixed(40), Fixed(8), Fixed(2), system_tokens=40, block_tokens=16)
    turns = by_session(list(sessions(chat, Constant(1), Random(1), number=2)))
    first, second = turns["s0"], turns["s1"]
    # 80 tokens are five blocks: two of the system prompt, then one that holds its end and the question's start
    assert first[0].blocks[:2] == second[0].blocks[:2] == (0, 1)
    assert len(first[0].blocks) == 5
    assert not set(first[0].blocks[2:]) & set(second[0].blocks[2:])
    # the next turn begins with all whole blocks of this one
    assert first[1].blocks[:5] == first[0].blocks
    assert len(first[1].blocks) == (80 + 8 + 40) // 16


def test_two_system_prompts() -> None:
    chat = Chat(Fixed(1), Fixed(1), Fixed(1), system_tokens=32, system_prompts=2)
    assert {each.blocks for each in sessions(chat, Constant(1), Random(1), number=20)} == {(0, 1), (2, 3)}


def test_a_session_ends_before_it_is_too_long() -> None:
    chat = Chat(Fixed(100), Fixed(100), Fixed(50), max_tokens=1000)
    asked = list(sessions(chat, Constant(1), Random(1), number=1))
    assert len(asked) == 5
    assert asked[-1].input_tokens + asked[-1].output_tokens == 1000


def test_a_first_turn_that_is_too_long_is_refused() -> None:
    with pytest.raises(UsageError, match=r"150 \+ 100 tokens"):
        list(sessions(Chat(Fixed(150), Fixed(100), Fixed(1), max_tokens=200), Constant(1), Random(1), number=1))


def test_a_prefix_cache_finds_all_but_what_is_new() -> None:
    chat = Chat(Fixed(16), Fixed(16), Fixed(10), system_tokens=1600)
    found, asked = prefix_hits(sessions(chat, Poisson(1), Random(3), number=50))
    assert asked == 50 * sum(101 + 2 * turn for turn in range(10))
    # missed: the system prompt once; the first question; then an answer and a question each turn
    assert asked - found == 100 + 50 * (1 + 9 * 2)


@given(st.integers(0, 2**32), st.sampled_from([0.0, 5.0]), st.integers(0, 90))
def test_in_order_of_time_and_of_turns(seed: int, think_s: float, system: int) -> None:
    chat = Chat(Uniform(1, 50), Uniform(1, 50), Uniform(1, 6), think_s=think_s, system_tokens=system, system_prompts=3)
    asked = list(sessions(chat, Poisson(2), Random(seed), number=10))
    assert [each.at_s for each in asked] == sorted(each.at_s for each in asked)
    for turns in by_session(asked).values():
        assert [each.turn for each in turns] == list(range(len(turns)))
        assert turns[0].think_s == 0
        for before, after in pairwise(turns):
            assert after.blocks[: len(before.blocks)] == before.blocks
            assert after.at_s == before.at_s + after.think_s
        for each in turns:
            assert len(each.blocks) == each.input_tokens // each.block_tokens
