"""Steps reconstructed from streams. sim/ plays real ones in test_calibration."""

from __future__ import annotations

import pytest

from kilocard.perf.seen_steps import Step, Stream, Watched, windows


def every(first: float, gap: float, count: int) -> tuple[float, ...]:
    return tuple(first + gap * place for place in range(count))


def test_one_stream_alone() -> None:
    stream = Stream(0.0, prompt=100, tokens_s=every(1, 0.5, 4))
    decode, idle = windows(Watched([stream]), budget=2048)
    assert decode.duration_s == 1.5
    # the context of the k-th output token is the prompt and what came before it
    assert decode.steps == (Step(0, 1, 101, 0), Step(0, 1, 102, 0), Step(0, 1, 103, 0))
    assert idle.duration_s == 1.0
    assert idle.from_sending
    assert idle.steps == (Step(100, 0, 100, 5000),)


def test_what_the_cache_had_is_not_prefilled_but_read() -> None:
    (idle,) = windows(Watched([Stream(0.0, prompt=100, cached=80, tokens_s=(1.0,))]), budget=2048)
    assert idle.steps == (Step(20, 0, 100, 20 * 90),)


def test_a_prompt_that_comes_in_between_makes_its_step_long() -> None:
    a = Stream(0.0, 10, tokens_s=(1.0, 1.1, 1.2, 1.7, 1.8, 1.9))
    b = Stream(1.25, 500, tokens_s=(1.702, 1.801, 1.899))
    decode, idle = windows(Watched([a, b]), budget=2048)
    assert [step.prefill_tokens for step in decode.steps] == [0, 0, 500, 0, 0]
    assert [step.decode_seqs for step in decode.steps] == [1, 1, 1, 2, 2]
    assert decode.steps[2].kv_read == 13 + 500
    assert decode.steps[3].kv_read == 14 + 501
    assert idle.steps[0].prefill_tokens == 10, "the second found the engine busy"


def test_a_long_prompt_was_prefilled_in_the_steps_before_its_first_token() -> None:
    a = Stream(0.0, 10, tokens_s=every(1, 1, 8))
    b = Stream(3.5, 250, tokens_s=(7.0, 8.0))
    decode, _ = windows(Watched([a, b]), budget=101)
    # 101 tokens a step, one of them stream A's: 100 + 100 + 50
    assert [step.prefill_tokens for step in decode.steps] == [0, 0, 0, 100, 100, 50, 0]
    assert [step.attended for step in decode.steps] == [0, 0, 0, 100 * 50, 100 * 150, 50 * 225, 0]


def test_a_chain_goes_on_with_the_next_stream_and_counts_each_step_once() -> None:
    a = Stream(0.0, 10, tokens_s=every(1.0, 0.1, 6))
    b = Stream(0.0, 10, tokens_s=every(1.301, 0.1, 10))
    decode = [window for window in windows(Watched([a, b]), budget=2048, length=100) if not window.from_sending]
    assert len(decode) == 1
    assert len(decode[0].steps) == 12
    assert decode[0].duration_s == pytest.approx(1.2, abs=0.01)
    assert sum(step.decode_seqs for step in decode[0].steps) == 5 + 9


def test_silence_breaks_the_chain() -> None:
    a = Stream(0.0, 10, tokens_s=every(1, 1, 3))
    b = Stream(50.0, 10, tokens_s=every(60, 1, 3))
    decode = [window for window in windows(Watched([a, b]), budget=2048, length=100) if not window.from_sending]
    assert [window.duration_s for window in decode] == [2, 2]


def test_streams_whose_times_are_interpolated_count_but_are_not_followed() -> None:
    rough = Stream(0.0, 10, tokens_s=every(1, 0.1, 20), exact=False)
    assert [window for window in windows(Watched([rough]), budget=2048) if not window.from_sending] == []
    fine = Stream(0.0, 10, tokens_s=every(1, 0.1, 20))
    decode = [window for window in windows(Watched([rough, fine]), budget=2048) if not window.from_sending]
    assert {step.decode_seqs for window in decode for step in window.steps} == {2}


def test_two_that_come_together_tell_nothing_of_an_idle_engine() -> None:
    both = [Stream(at_s, 10, tokens_s=(1.0,)) for at_s in (0.0, 0.001)]
    assert windows(Watched(both), budget=2048) == []


def test_after_a_request_that_never_answered_nothing_is_known_to_be_idle() -> None:
    assert windows(Watched([Stream(0.0, 10), Stream(5.0, 10, tokens_s=(6.0,))]), budget=2048) == []


def test_before_all_streams_are_known_nothing_is_taken_for_a_step() -> None:
    a = Stream(0.0, 10, tokens_s=every(1, 1, 10))
    (decode,) = windows(Watched([a], since_s=4.5), budget=2048)
    assert decode.duration_s == 5
    assert len(decode.steps) == 5


def test_no_streams() -> None:
    assert windows(Watched([]), budget=2048) == []
