"""The book: what is let in, what is denied and until when, what comes back."""

from __future__ import annotations

import pytest

from kilocard.spec.model import TenantLimits
from kilocard.tenancy.book import Book
from kilocard.tenancy.budget import BudgetKey
from kilocard.tenancy.limits import Ask, Denied, Grant, Scope, Used

NOON = 1_795_953_600.0  # 2026-11-29 12:00 UTC
DAY = 86_400


def scope(model: str = "", **limits: int) -> Scope:
    return Scope("acme", model, TenantLimits(**limits))


def ask(*scopes: Scope, prompt: int = 10, output: int = 10, bounded: bool = True, wall: float = NOON) -> Ask:
    return Ask(scopes, prompt, output, bounded, wall, 60.0)


def granted(book: Book, request: Ask, now: float = 100.0) -> Grant:
    answer = book.decide(request, now)
    assert isinstance(answer, Grant), answer
    return answer


def denied(book: Book, request: Ask, now: float = 100.0) -> Denied:
    answer = book.decide(request, now)
    assert isinstance(answer, Denied), answer
    return answer


def test_requests_per_minute() -> None:
    book = Book()
    request = ask(scope(requests_per_minute=2))
    granted(book, request, 100.0)
    granted(book, request, 110.0)
    no = denied(book, request, 120.0)
    assert (no.code, no.retry_after) == ("requests_per_minute", 41.0)
    assert "2 requests in a minute" in no.message
    granted(book, request, 161.0)


def test_tokens_per_minute_are_reserved_before_they_are_used() -> None:
    book = Book()
    request = ask(scope(tokens_per_minute=50))
    first = granted(book, request)
    granted(book, request)
    assert denied(book, request).code == "tokens_per_minute"
    book.settle(first, 5, 100.5)
    granted(book, request, 101.0)  # 5 + 20 + 20


def test_what_was_used_beyond_the_reservation_is_charged_and_nothing_else_is_let_in_until_there_is_room() -> None:
    book = Book()
    request = ask(scope(tokens_per_minute=50))
    book.settle(granted(book, request, 100.0), 70, 130.0)
    assert book.used(request.scopes[0], 130.0, NOON).tokens == 70
    assert denied(book, request, 130.0).retry_after == 61.0  # the excess of 50 alone fills it; it was charged at 130
    granted(book, request, 191.0)


def test_concurrency() -> None:
    book = Book()
    request = ask(scope(concurrency=1))
    first = granted(book, request)
    assert (denied(book, request).code, denied(book, request).retry_after) == ("concurrency", 1.0)
    book.settle(first, 20, 101.0)
    granted(book, request)


def test_a_refusal_takes_nothing_of_any_limit() -> None:
    """litellm#39309: a request that was refused for one limit ate of another."""
    book = Book()
    both = ask(scope(requests_per_minute=10), scope("m", concurrency=1))
    granted(book, both)
    before = [book.used(each, 100.0, NOON) for each in both.scopes]
    for _ in range(20):
        assert denied(book, both).code == "concurrency"
    assert [book.used(each, 100.0, NOON) for each in both.scopes] == before


def test_tenant_and_model_limits_both_hold() -> None:
    book = Book()
    small, big = scope(tokens_per_minute=100), scope("m", tokens_per_minute=30)
    granted(book, ask(small, big))
    no = denied(book, ask(small, big))
    assert no.code == "tokens_per_minute"
    assert "model 'm'" in no.message
    for _ in range(4):
        granted(book, ask(small))  # another model
    assert "model" not in denied(book, ask(small)).message


def test_nothing_used_gives_everything_back_the_count_of_the_request_too() -> None:
    book = Book()
    request = ask(scope(requests_per_minute=1, tokens_per_minute=20, concurrency=1, tokens_per_day=20))
    for _ in range(10):
        book.settle(granted(book, request), None, 100.1)
    assert book.used(request.scopes[0], 101.0, NOON) == Used()
    assert book.take_unsaved() == {}


def test_settling_twice_is_harmless() -> None:
    book = Book()
    request = ask(scope(requests_per_minute=9, concurrency=9, tokens_per_day=900))
    one = granted(book, request)
    granted(book, request)
    book.settle(one, 7, 101.0)
    after = book.used(request.scopes[0], 101.0, NOON)
    book.settle(one, None, 101.0)
    book.settle(one, 7, 101.0)
    assert book.used(request.scopes[0], 101.0, NOON) == after == Used(1, 2, 27, 27, 0)


def test_a_request_that_is_larger_than_the_limit_can_never_pass() -> None:
    no = denied(Book(), ask(scope(tokens_per_minute=100), prompt=10, output=91))
    assert (no.code, no.retry_after) == ("request_exceeds_limit", None)
    assert "10 tokens for the prompt and 91 for the answer" in no.message


def test_an_unbounded_request_passes_when_the_window_is_empty() -> None:
    book = Book()
    request = ask(scope(tokens_per_minute=100), output=256, bounded=False)
    first = granted(book, request)
    assert first.tokens == 100
    assert denied(book, request).code == "tokens_per_minute"
    book.settle(first, 30, 101.0)
    assert denied(book, request, 102.0).code == "tokens_per_minute"  # it asks for all of it again
    granted(book, request, 161.0)


def test_the_limit_that_takes_longest_is_the_reason() -> None:
    book = Book()
    request = ask(scope(requests_per_minute=1, concurrency=1, tokens_per_day=30))
    granted(book, request)
    no = denied(book, request)
    assert (no.code, no.retry_after) == ("tokens_per_day", DAY / 2)


@pytest.mark.parametrize(("key", "days"), [("tokens_per_day", 1), ("tokens_per_month", 2)])
def test_a_budget_is_whole_again_in_the_next_period(key: str, days: int) -> None:
    book = Book()
    limits = Scope("acme", "", TenantLimits(**{key: 20}))
    book.settle(granted(book, ask(limits)), 20, 101.0)
    assert denied(book, ask(limits)).code == key
    granted(book, ask(limits, wall=NOON + days * DAY))  # 30 November, 1 December


def test_a_request_over_midnight_is_paid_by_the_day_on_which_it_began() -> None:
    book = Book()
    limits = scope(tokens_per_day=100)
    old = granted(book, ask(limits))
    assert book.used(limits, 200.0, NOON + DAY).day == 0
    book.settle(old, 15, 200.0)
    assert book.used(limits, 200.0, NOON + DAY).day == 0
    assert book.take_unsaved() == {BudgetKey("acme", "", "2026-11-29"): 15}


def test_budgets_come_from_a_store_and_go_to_it() -> None:
    book = Book()
    limits = scope(tokens_per_day=100, tokens_per_month=1000)
    day, month = BudgetKey("acme", "", "2026-11-29"), BudgetKey("acme", "", "2026-11")
    book.correct({day: 70, month: 500})
    grant = granted(book, ask(limits))
    assert denied(book, ask(limits)).code == "tokens_per_day"
    book.settle(grant, 12, 101.0)
    unsaved = book.take_unsaved()
    assert unsaved == {day: 12, month: 12}
    book.put_back(unsaved)  # the store failed
    book.settle(granted(book, ask(limits, prompt=1, output=1)), 2, 101.0)
    assert book.take_unsaved() == {day: 14, month: 14}
    book.correct({day: 94, month: 514})  # another process used 10
    assert book.used(limits, 101.0, NOON)[3:] == (94, 514)


def test_budgets_of_long_ago_are_forgotten() -> None:
    book = Book()
    for day in range(400):
        book.settle(granted(book, ask(scope(tokens_per_day=100, tokens_per_month=9000), wall=NOON + day * DAY)), 1, 100)
    assert len(book._budgets) <= 4


def test_the_headers_tell_of_the_tightest_limit() -> None:
    book = Book()
    wide = scope(requests_per_minute=100, tokens_per_minute=1000, tokens_per_day=50)
    grant = granted(book, ask(wide, scope("m", requests_per_minute=3)), 100.25)
    assert grant.requests_left == (3, 2, 60.75)
    assert grant.tokens_left == (50, 30, DAY / 2)
    assert granted(book, ask(scope(concurrency=5)))[3:] == (None, None)


def test_changed_limits_hold_at_once_and_what_was_counted_stays() -> None:
    book = Book()
    running = granted(book, ask(scope(requests_per_minute=5, tokens_per_minute=1000)))
    granted(book, ask(scope(requests_per_minute=5)))
    assert denied(book, ask(scope(requests_per_minute=2))).code == "requests_per_minute"
    assert denied(book, ask(scope(tokens_per_minute=50))).code == "tokens_per_minute"
    granted(book, ask(scope(tokens_per_day=1000)))  # a new kind of limit: its budget begins with what comes now
    book.settle(running, 5, 101.0)
    assert book.used(scope(), 101.0, NOON) == Used(2, 3, 45, 20, 0)
