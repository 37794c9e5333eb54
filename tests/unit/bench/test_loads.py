"""How loads are written on the command line."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilocard.bench.loads import Load, parse_rates, parse_sweep
from kilocard.core.errors import UsageError


def test_a_sweep_is_a_list_of_concurrencies_in_the_order_given() -> None:
    assert parse_sweep("8, 1,2") == [Load(concurrency=8), Load(concurrency=1), Load(concurrency=2)]


def test_a_rate_may_be_one_number_or_several() -> None:
    assert parse_rates("2") == [Load(rate_per_s=2.0)]
    assert parse_rates("0.5,1e1") == [Load(rate_per_s=0.5), Load(rate_per_s=10.0)]


@pytest.mark.parametrize("text", ["", "1,,2", "0", "-1", "1.5", "many", "²", "1,1", "999999999"])
def test_what_is_no_concurrency_is_told_with_the_option(text: str) -> None:
    with pytest.raises(UsageError, match="--sweep"):
        parse_sweep(text)


@pytest.mark.parametrize("text", ["", "0", "-1", "nan", "inf", "fast", "2,2"])
def test_what_is_no_rate_is_told_with_the_option(text: str) -> None:
    with pytest.raises(UsageError, match="--rate"):
        parse_rates(text)


@given(st.text(max_size=20))
def test_any_text_is_loads_or_a_usage_error(text: str) -> None:
    for parse in (parse_sweep, parse_rates):
        with contextlib.suppress(UsageError):
            assert parse(text)


def test_a_load_says_what_it_is() -> None:
    assert str(Load(concurrency=8)) == "8 at once"
    assert str(Load(rate_per_s=0.5)) == "0.5 requests/s"
    assert str(Load()) == "the trace"
