"""Without the store each gateway has a part of every limit, and all parts together are no more than the limit."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kilocard.spec.model import TenantLimits
from kilocard.tenancy.alone import Alone
from kilocard.tenancy.ledger import Known, Ledger, Terms
from kilocard.tenancy.limits import Ask, Denied, Grant, Scope
from kilocard.tenancy.periods import periods

NOW = 1_795_996_500.0


class Gateway:
    """What one gateway has: a ledger, and since the store went away, Alone."""

    def __init__(self, scope: Scope) -> None:
        self.ledger: Ledger[Terms] = Ledger()
        self.scope = scope
        dates = periods(NOW)
        self.terms = Terms((scope,), dates, (self.ledger.seat(scope, dates),))
        self.alone = Alone()
        self.ids = 0

    def used_before(self, requests: int, tokens: int = 0, at: float = NOW) -> None:
        """Through the store."""
        for _ in range(requests):
            self.ids += 1
            self.ledger.take(self.ids, self.terms, tokens, int(at))

    def hears(self, requests: int = 0, tokens: int = 0, day: int = -1, at: float = NOW) -> None:
        """What all have used together."""
        self.ledger.heard(self.terms.seats, [Known(requests, tokens, 0, day, 0, -1, -1)], int(at))

    def ask(self, tokens: int, gateways: int, now: float = NOW) -> Grant | Denied:
        self.ids += 1
        ask = Ask((self.scope,), tokens, 0, True, now, 60.0)
        answer = self.alone.decide(self.ids, ask, self.terms, gateways, now)
        if isinstance(answer, Grant):
            self.ledger.take(self.ids, self.terms, answer.tokens, int(now))
        return answer

    def passes(self, count: int, gateways: int, tokens: int = 0, now: float = NOW) -> int:
        return sum(isinstance(self.ask(tokens, gateways, now), Grant) for _ in range(count))


@given(st.integers(3, 100), st.data())
def test_19_all_parts_are_no_more_than_the_limit_whatever_each_has_heard(limit: int, data: st.DataObject) -> None:
    """If none had used more than its share before."""
    scope = Scope("t", "", TenantLimits(requests_per_minute=limit, tokens_per_minute=10 * limit))
    fleet = [Gateway(scope) for _ in range(3)]
    before = [data.draw(st.integers(0, limit // 3)) for _ in fleet]
    for gateway, used in zip(fleet, before, strict=True):
        gateway.used_before(used, 10)
        heard = data.draw(st.integers(used, sum(before)))
        gateway.hears(heard, heard * 10)
    passed = sum(gateway.passes(limit, 3, 10) for gateway in fleet)
    assert sum(before) + passed <= limit


@given(st.integers(3, 100), st.lists(st.integers(0, 50), min_size=3, max_size=3))
def test_nor_if_one_had_when_the_others_have_heard_of_it(limit: int, before: list[int]) -> None:
    before = [min(used, limit - sum(before[:place])) if sum(before[:place]) < limit else 0
              for place, used in enumerate(before)]  # fmt: skip
    scope = Scope("t", "", TenantLimits(requests_per_minute=limit))
    fleet = [Gateway(scope) for _ in range(3)]
    for gateway, used in zip(fleet, before, strict=True):
        gateway.used_before(used)
        gateway.hears(sum(before))
    assert sum(before) + sum(gateway.passes(limit, 3) for gateway in fleet) <= limit


def test_a_budget_is_what_is_left_of_it_in_parts() -> None:
    scope = Scope("t", "", TenantLimits(tokens_per_day=1000))
    gateway = Gateway(scope)
    gateway.hears(day=700)
    assert gateway.passes(100, 3, tokens=10) == 10


def test_a_limit_smaller_than_the_fleet_is_one_for_each() -> None:
    gateway = Gateway(Scope("t", "", TenantLimits(requests_per_minute=2)))
    assert gateway.passes(5, 3) == 1


def test_room_comes_back_by_the_minute() -> None:
    gateway = Gateway(Scope("t", "", TenantLimits(requests_per_minute=30)))
    gateway.used_before(10)
    gateway.hears(30)
    assert gateway.passes(5, 3) == 0
    assert gateway.passes(30, 3, now=NOW + 61) == 10


def test_what_ended_makes_room() -> None:
    gateway = Gateway(Scope("t", "", TenantLimits(concurrency=6)))
    grants = [answer for _ in range(5) if isinstance(answer := gateway.ask(1, 3), Grant)]
    assert len(grants) == 2
    for grant in grants:
        gateway.ledger.settle(grant.id, 1, int(NOW))
        gateway.alone.settle(grant.id, 1, NOW)
        gateway.alone.settle(grant.id, 1, NOW)
    assert gateway.passes(5, 3) == 2


def test_a_request_that_is_more_than_a_part_may_come_again() -> None:
    gateway = Gateway(Scope("t", "", TenantLimits(tokens_per_minute=90)))
    part, whole = gateway.ask(40, 3), gateway.ask(91, 3)
    assert isinstance(part, Denied) and part.code == "tokens_per_minute" and part.retry_after
    assert isinstance(whole, Denied) and whole.code == "request_exceeds_limit" and whole.retry_after is None


def test_of_a_tenant_with_a_budget_alone_the_budget_is_named() -> None:
    gateway = Gateway(Scope("t", "", TenantLimits(tokens_per_day=1000)))
    gateway.hears(day=900)
    answer = gateway.ask(200, 1)
    assert isinstance(answer, Denied) and answer.code == "tokens_per_day"
