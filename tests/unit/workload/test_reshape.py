"""Traces made fit: ticks, scaling, cutting, block sizes; and their summary."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilocard.core.errors import UsageError
from kilocard.workload.arrivals import Poisson
from kilocard.workload.blocks import finer, prefix_hits
from kilocard.workload.generate import generate
from kilocard.workload.lengths import Fixed, Uniform
from kilocard.workload.mixes import Mix
from kilocard.workload.request import WorkloadRequest
from kilocard.workload.reshape import cut, scale, spread, tick_s
from kilocard.workload.sessions import Chat, sessions
from kilocard.workload.summary import summary


def plain(*times: float) -> list[WorkloadRequest]:
    return [WorkloadRequest(at_s, 10, 5) for at_s in times]


def conversations(number: int = 30) -> list[WorkloadRequest]:
    chat = Chat(Uniform(5, 90), Uniform(5, 90), Uniform(1, 5), think_s=3, system_tokens=64)
    return list(sessions(chat, Poisson(1), Random(4), number=number))


def test_a_coarse_clock_is_noticed_and_its_ticks_are_spread() -> None:
    asked = plain(*[tick * 3 for tick in range(200) for _ in range(10)])
    assert tick_s(asked) == 3
    found = spread(asked, Random(1))
    assert summary(found).gap_cv == pytest.approx(1, abs=0.15), "as independent clients"
    assert all(
        tick * 3 <= each.at_s < tick * 3 + 3 for each, tick in zip(found, sorted([*range(200)] * 10), strict=True)
    )


def test_a_fine_clock_is_left_alone() -> None:
    asked = list(generate(Poisson(9), Mix.of(Fixed(1), Fixed(1)), Random(1), requests=100))
    assert tick_s(asked) is None
    assert spread(asked, Random(1)) == asked
    assert tick_s(plain(*[0] * 50)) is None, "a closed loop has no clock"


@given(st.lists(st.integers(0, 8), min_size=1, max_size=60), st.integers(0, 2**32))
def test_spreading_keeps_the_order(ticks: list[int], seed: int) -> None:
    asked = [WorkloadRequest(tick * 3.0, place + 1, 1) for place, tick in enumerate(sorted(ticks))]
    found = spread(asked, Random(seed), 3.0)
    assert [each.input_tokens for each in found] == [each.input_tokens for each in asked]
    assert [each.at_s for each in found] == sorted(each.at_s for each in found)


def test_scaling_superposes_and_keeps_think_times() -> None:
    asked = conversations()
    found = scale(asked, 3, Random(1))
    assert len(found) == 3 * len(asked)
    assert [each.at_s for each in found] == sorted(each.at_s for each in found)
    for copy in ("~1", "~2"):
        assert gaps(found, "s3" + copy) == gaps(asked, "s3")


def gaps(requests: list[WorkloadRequest], session: str) -> list[float]:
    times = [each.at_s for each in requests if each.session == session]
    return [round(after - before, 6) for before, after in pairwise(times)]


def test_a_copy_is_other_people_with_other_documents() -> None:
    asked = conversations()
    found = scale(asked, 2, Random(1))
    mine = {each for request in asked for each in request.blocks}
    copied = [each for each in found if each.session and each.session.endswith("~1")]
    assert len(copied) == len(asked)
    assert not mine & {each for request in copied for each in request.blocks}
    hits = prefix_hits(asked)
    assert prefix_hits(found) == (2 * hits[0], 2 * hits[1])


def test_a_broken_copy_has_some_of_the_sessions_whole() -> None:
    asked = conversations(400)
    found = scale(asked, 0.5, Random(1))
    assert len(found) / len(asked) == pytest.approx(0.5, abs=0.1)
    for name in {each.session for each in found}:
        assert sum(each.session == name for each in found) == sum(each.session == name for each in asked)
    assert scale(asked, 1, Random(1)) == asked


@pytest.mark.parametrize(("requests", "times"), [(plain(1), 0), (plain(1), -1), ([], 2)])
def test_nothing_cannot_be_scaled(requests: list[WorkloadRequest], times: float) -> None:
    with pytest.raises(UsageError, match="more than 0"):
        scale(requests, times, Random(1))


def test_cut_counts_from_its_start() -> None:
    assert [each.at_s for each in cut(plain(0, 1, 2, 3), 1, 3)] == [0, 1]
    asked = [replace(each, session="a", turn=turn) for turn, each in enumerate(plain(0, 1, 2))]
    assert [each.turn for each in cut(asked, 1, 3)] == [0, 1]
    with pytest.raises(UsageError, match="no stretch"):
        cut(asked, 2, 2)


def test_finer_blocks_share_what_the_coarse_ones_shared() -> None:
    asked = [
        WorkloadRequest(0, 1030, 1, blocks=(7, 8), block_tokens=512),
        WorkloadRequest(1, 1030, 1, blocks=(7, 9), block_tokens=512),
    ]
    first, second = finer(asked)
    assert len(first.blocks) == 64
    assert first.blocks[:32] == second.blocks[:32]
    assert not set(first.blocks[32:]) & set(second.blocks)
    with pytest.raises(UsageError, match="can't be cut"):
        finer(asked, 48)


def test_summary() -> None:
    found = summary(plain(*[at / 2 for at in range(121)], 181))
    assert (found.requests, found.span_s) == (122, 181)
    assert (found.busiest_minute, found.quietest_minute, found.empty_minutes) == (2, 1 / 60, 1)
    assert (found.input.mean, found.output.max, found.sessions, found.prefix_share) == (10, 5, 0, None)


def test_summary_of_a_single_request() -> None:
    found = summary(plain(5))
    assert (found.rate, found.gap_cv, found.busiest_minute) == (0, None, None)


def test_summary_of_conversations() -> None:
    asked = conversations()
    found = summary(asked)
    assert found.sessions == 30
    assert found.mean_turns == len(asked) / 30
    assert found.prefix_share is not None
    assert 0.3 < found.prefix_share < 0.9
