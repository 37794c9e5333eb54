"""Prefill and decode apart."""

from __future__ import annotations

import pytest

from kilocard.bench.asked import single_lengths, too_long
from kilocard.bench.record import RequestRecord
from kilocard.bench.single import single
from kilocard.workload.lengths import Fixed
from kilocard.workload.mixes import Mix


def answered(input_tokens: int, ttft_s: float, output: int = 2, tpot_s: float = 0.01) -> RequestRecord:
    first = 10.0 + ttft_s
    last = first + (output - 1) * tpot_s
    return RequestRecord(
        10.0, 10.0, input_tokens, output, first, last, last, input_tokens=input_tokens, output_tokens=output
    )


def test_a_straight_line_parts_what_a_prompt_costs_from_what_its_tokens_cost() -> None:
    prefills = [answered(tokens, 0.02 + tokens * 1e-4) for tokens in (128, 512, 2048)]
    found = single(prefills, [])
    assert found["ttft_s_at_512"] == pytest.approx(0.0712)
    assert found["prefill_fixed_s"] == pytest.approx(0.02)
    assert found["prefill_s_per_token"] == pytest.approx(1e-4)


def test_repeats_of_a_length_count_by_their_median() -> None:
    found = single([answered(100, 0.1), answered(100, 0.1), answered(100, 5.0)], [])
    assert found == {"ttft_s_at_100": pytest.approx(0.1)}


def test_decode_is_measured_on_whole_answers() -> None:
    found = single([], [answered(512, 0.1, output=101, tpot_s=0.03)])
    assert found["decode_tpot_s"] == pytest.approx(0.03)
    assert found["e2e_s"] == pytest.approx(3.1)


def test_what_failed_is_left_out() -> None:
    failed = RequestRecord(0.0, 0.0, 512, 2, error="refused: 429")
    assert single([failed], [failed]) == {}


def test_lengths_lie_around_the_mean_and_far_enough_apart() -> None:
    assert single_lengths(512, None) == [128, 512, 2048]
    assert single_lengths(512, 1000) == [128, 512, 1000]
    assert single_lengths(512, 600) == [128, 512]  # 600 is no other length than 512
    assert single_lengths(8, None, shortest=30) == [30]  # the chat template alone has 30
    assert single_lengths(2000, 100) == [100]


def test_a_mix_that_does_not_fit_is_told_before_anything_is_sent() -> None:
    mix = Mix.of(Fixed(2000), Fixed(100))
    assert too_long(mix, 2048) is not None
    assert too_long(mix, 4096) is None
    assert too_long(mix, None) is None
