"""W3C traceparent: what is read, what is refused, what is written."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilocard.wire.trace import TraceParent, parse, unsampled

GOOD = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
parents = st.builds(TraceParent, st.integers(1, 2**128 - 1), st.integers(1, 2**64 - 1), st.integers(0, 3))


def test_the_example_of_the_standard() -> None:
    parent = parse(GOOD)
    assert parent == TraceParent(0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7, 1)
    assert parent.sampled and parent.header() == GOOD


@given(parents)
def test_what_is_written_is_read_back(parent: TraceParent) -> None:
    assert parse(parent.header()) == parent
    assert unsampled(parent.header()) is not parent.sampled


@given(st.binary(max_size=80) | st.from_regex(rb"[0-9a-f-]{50,60}"))
def test_whatever_comes_is_a_parent_or_none(value: bytes) -> None:
    parent = parse(value)
    assert unsampled(value) is (parent is not None and not parent.sampled)
    if parent is not None:
        assert 0 < parent.trace_id < 2**128 and 0 < parent.span_id < 2**64
        assert re.fullmatch(rb"00-[0-9a-f]{32}-[0-9a-f]{16}-0[0-3]", parent.header())
        assert value[3:35] == parent.header()[3:35]


@pytest.mark.parametrize(
    "value",
    [
        b"",
        GOOD.upper(),
        GOOD[:-1],
        GOOD + b"-more",  # version 00 has four parts
        b"ff" + GOOD[2:],
        b"00-" + b"0" * 32 + GOOD[35:],
        GOOD[:36] + b"0" * 16 + b"-01",
        GOOD.replace(b"-", b"_"),
        b" " + GOOD,
        GOOD + b"\n",
    ],
)
def test_what_is_malformed_is_none(value: bytes) -> None:
    assert parse(value) is None


@pytest.mark.parametrize(
    ("value", "good"), [(b"cc" + GOOD[2:], 1), (b"cc" + GOOD[2:] + b"-what", 1), (b"cc" + GOOD[2:] + b".x", 0)]
)
def test_a_later_version_is_read_as_far_as_it_is_known(value: bytes, good: int) -> None:
    assert (parse(value) == parse(GOOD)) is bool(good)


def test_unknown_flags_are_not_passed_on() -> None:
    parent = parse(GOOD[:-2] + b"ff")
    assert parent is not None and parent.sampled and parent.header().endswith(b"-03")
