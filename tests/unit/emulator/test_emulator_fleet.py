"""What a fleet of emulated engines refuses before it makes one."""

from __future__ import annotations

import asyncio

import pytest

from kilocard.core.errors import UsageError
from kilocard.emulator.fleet import consecutive
from kilocard.emulator.serve import serve
from kilocard.emulator.settings import Settings


def test_ports_follow_one_another_or_are_any() -> None:
    assert consecutive(8100, 3) == [8100, 8101, 8102]
    assert consecutive(65_535, 1) == [65_535]
    assert consecutive(0, 3) == [0, 0, 0]


@pytest.mark.parametrize(("first", "count"), [(-1, 1), (70_000, 1), (65_535, 2), (8100, 100_000), (8100, 0), (0, -1)])
def test_ports_that_do_not_exist_are_refused_before_an_engine_is_made(first: int, count: int) -> None:
    with pytest.raises(UsageError):
        asyncio.run(serve(Settings(), host="127.0.0.1", port=first, count=count))


def test_a_page_is_not_padded_to_less_than_nothing() -> None:
    with pytest.raises(UsageError, match="metrics_bytes"):
        Settings(metrics_bytes=-1)
