"""Records as calibration wants them."""

from __future__ import annotations

from array import array

import pytest

from kilocard.bench.record import CUT_OFF, RequestRecord
from kilocard.bench.streams import stream
from kilocard.perf.seen_steps import Stream


def record(gaps: list[float], **more: object) -> RequestRecord:
    values = {"asked_input": 10, "asked_output": 5, "first_s": 1.0, "gaps_s": array("d", gaps), **more}
    return RequestRecord(intended_s=0.0, sent_s=0.5, **values)  # type: ignore[arg-type]  # fields by name


def test_a_complete_one() -> None:
    found = stream(record([0.5, 0.25], input_tokens=12, output_tokens=3, cached_tokens=4))
    assert found == Stream(0.5, 12, 4, (1.0, 1.5, 1.75))


def test_a_token_without_text_of_its_own_shows_as_a_gap_of_two() -> None:
    gaps = [0.1] * 30
    gaps[12] = 0.2
    found = stream(record(gaps, output_tokens=32))
    assert found is not None
    assert found.exact
    assert len(found.tokens_s) == 32
    assert found.tokens_s[13] == pytest.approx(2.3)


def test_a_prompt_in_between_is_not_taken_for_a_missing_token() -> None:
    gaps = [0.1] * 30
    gaps[5], gaps[12] = 0.5, 0.21
    found = stream(record(gaps, output_tokens=32))
    assert found is not None
    assert found.tokens_s[13] == pytest.approx(1 + 12 * 0.1 - 0.1 + 0.5 + 0.105)


def test_several_tokens_at_a_time_are_no_steps() -> None:
    found = stream(record([0.1] * 10, output_tokens=21))
    assert found is not None
    assert not found.exact
    assert len(found.tokens_s) == 21
    assert found.tokens_s[1] == pytest.approx(1.05)


def test_one_cut_off_has_what_it_had() -> None:
    assert stream(record([0.1], output_tokens=None, error=CUT_OFF)) == Stream(0.5, 10, 0, (1.0, 1.1))
    assert stream(record([], first_s=None, error=CUT_OFF)) == Stream(0.5, 10, 0)


def test_one_that_was_refused_is_none() -> None:
    assert stream(record([], first_s=None, error="refused: 429")) is None
