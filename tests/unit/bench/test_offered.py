"""Requests of a point."""

from __future__ import annotations

from itertools import islice
from random import Random

import pytest

from kilocard.bench.asked import Asked
from kilocard.bench.offered import closed_loop, open_loop
from kilocard.workload.lengths import Fixed, Uniform
from kilocard.workload.mixes import Mix
from kilocard.workload.sessions import Chat

MIX = Mix.of(Uniform(10, 1000), Uniform(10, 1000))
CHAT = Chat(question=Fixed(20), answer=Fixed(30), turns=Fixed(3), think_s=5.0, system_tokens=32)


def test_every_load_asks_the_same_in_the_same_order() -> None:
    asked = Asked(mix=MIX)
    closed = [(r.input_tokens, r.output_tokens) for r in islice(closed_loop(asked, Random(1)), 50)]
    slow = [(r.input_tokens, r.output_tokens) for r in islice(open_loop(asked, 0.1, Random(1)), 50)]
    fast = [(r.input_tokens, r.output_tokens) for r in islice(open_loop(asked, 99.0, Random(1)), 50)]
    assert closed == slow == fast


def test_arrivals_have_the_rate_that_was_asked_for() -> None:
    for burstiness in (1.0, 0.3):
        asked = Asked(mix=MIX, burstiness=burstiness)
        *_, last = islice(open_loop(asked, 50.0, Random(2)), 5000)
        assert 5000 / last.at_s == pytest.approx(50.0, rel=0.1)


def test_the_rate_of_conversations_is_that_of_their_requests() -> None:
    requests = list(islice(open_loop(Asked(mix=MIX, chat=CHAT), 30.0, Random(3)), 5000))
    assert 5000 / requests[-1].at_s == pytest.approx(30.0, rel=0.1)


def test_turns_of_a_closed_loop_come_in_order_and_think_before_they_come() -> None:
    turns = list(islice(closed_loop(Asked(mix=MIX, chat=CHAT), Random(4)), 300))
    by_session: dict[str | None, list[int]] = {}
    for turn in turns:
        by_session.setdefault(turn.session, []).append(turn.turn)
    assert all(seen == [0, 1, 2] for seen in list(by_session.values())[:-1])
    assert all(turn.think_s == 0.0 for turn in turns if turn.turn == 0)
    thinking = [turn.think_s for turn in turns if turn.turn]
    assert sum(thinking) / len(thinking) == pytest.approx(5.0, rel=0.2)
    assert all(turn.blocks[:2] == turns[0].blocks[:2] for turn in turns)  # the system prompt is shared
