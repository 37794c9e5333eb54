"""News is what differs from what is known and is the same at two looks."""

from __future__ import annotations

from kilocard.gateway.stillness import Stillness


def test_news_is_what_lay_still_for_two_looks() -> None:
    still = Stillness("a")
    assert [still.news(value) for value in "aabcdd"] == [False, False, False, False, False, True]


def test_what_comes_back_is_no_news() -> None:
    still = Stillness("a")
    assert [still.news(value) for value in "baa"] == [False, False, False]


def test_what_was_taken_is_known() -> None:
    still = Stillness("a")
    still.take("b")
    assert not still.news("b") and not still.news("a") and still.news("a")
