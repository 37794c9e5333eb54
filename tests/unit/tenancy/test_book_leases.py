"""Whatever happens in whatever order: leases neither leak nor go negative, and no limit is passed by a token."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from kilocard.spec.model import TenantLimits
from kilocard.tenancy.book import Book
from kilocard.tenancy.limits import Ask, Grant, Scope

EVERYWHERE = Scope("t", "", TenantLimits(7, 60, 3, 200, 260))
FOR_M = Scope("t", "m", TenantLimits(4, 40, 2, 150, None))
BEGIN = 1_795_996_500.0  # five minutes before midnight, 29 November


class Leases(RuleBasedStateMachine):
    grants = Bundle("grants")
    settled = Bundle("settled")

    def __init__(self) -> None:
        super().__init__()
        self.book = Book()
        self.now = 0.0
        #: grant id → (time, tokens, model), running ones as reserved
        self.charged: dict[int | str, tuple[float, int, bool]] = {}
        self.running: set[int | str] = set()

    @property
    def wall(self) -> float:
        return BEGIN + self.now

    @rule(seconds=st.floats(0, 70))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(target=grants, prompt=st.integers(0, 20), output=st.integers(0, 30), bounded=st.booleans(), m=st.booleans())
    def reserve(self, prompt: int, output: int, bounded: bool, m: bool) -> object:
        scopes = (EVERYWHERE, FOR_M) if m else (EVERYWHERE,)
        before = self.counts()
        answer = self.book.decide(Ask(scopes, prompt, output, bounded, self.wall, 60.0), self.now)
        if not isinstance(answer, Grant):
            assert self.counts() == before
            assert answer.retry_after is None or answer.retry_after > 0
            return multiple()
        self.charged[answer.id] = (self.now, answer.tokens, m)
        self.running.add(answer.id)
        return answer

    @rule(target=settled, grant=consumes(grants), share=st.floats(0, 1))
    def settle(self, grant: Grant, share: float) -> Grant:
        used = int(grant.tokens * share)
        self.book.settle(grant, used, self.now)
        at, _, m = self.charged[grant.id]
        self.charged[grant.id] = (at, used, m)
        self.running.discard(grant.id)
        return grant

    @rule(target=settled, grant=consumes(grants))
    def refund(self, grant: Grant) -> Grant:
        self.book.settle(grant, None, self.now)
        del self.charged[grant.id]
        self.running.discard(grant.id)
        return grant

    @rule(grant=settled, used=st.none() | st.integers(0, 99))
    def settle_again(self, grant: Grant, used: int | None) -> None:
        before = self.counts()
        self.book.settle(grant, used, self.now)
        assert self.counts() == before

    def counts(self) -> object:
        return [self.book.used(scope, self.now, self.wall) for scope in (EVERYWHERE, FOR_M)]

    @invariant()
    def counts_are_those_of_the_running_requests(self) -> None:
        for scope, only_m in ((EVERYWHERE, False), (FOR_M, True)):
            used = self.book.used(scope, self.now, self.wall)
            assert used.in_flight == sum(1 for id in self.running if self.charged[id][2] or not only_m)
            assert used.in_flight <= (scope.limits.concurrency or 0)
            assert min(used) >= 0

    @invariant()
    def no_minute_has_more_than_the_limit(self) -> None:
        for scope, only_m in ((EVERYWHERE, False), (FOR_M, True)):
            mine = [(at, tokens) for at, tokens, m in self.charged.values() if m or not only_m]
            for start, _ in mine:
                minute = [tokens for at, tokens in mine if start <= at < start + 60]
                assert len(minute) <= (scope.limits.requests_per_minute or 0)
                assert sum(minute) <= (scope.limits.tokens_per_minute or 0)

    @invariant()
    def no_day_has_more_than_its_budget(self) -> None:
        for scope, only_m in ((EVERYWHERE, False), (FOR_M, True)):
            days: dict[int, int] = {}
            for at, tokens, m in self.charged.values():
                if m or not only_m:
                    day = int((BEGIN + at) // 86_400)
                    days[day] = days.get(day, 0) + tokens
            assert max(days.values(), default=0) <= (scope.limits.tokens_per_day or 0)

    def teardown(self) -> None:
        """All requests end; a minute later nothing is left but the budgets."""
        for id in list(self.running):
            tokens = self.charged[id][1]
            ask = Ask((EVERYWHERE,), 0, 0, True, self.wall, 60.0)
            self.book.settle(Grant(id, ask, tokens, None, None), tokens, self.now)
        later = self.now + 61
        for scope in (EVERYWHERE, FOR_M):
            assert self.book.used(scope, later, BEGIN + later)[:3] == (0, 0, 0)
        assert not self.book._leases


TestLeases = Leases.TestCase
TestLeases.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
