"""One scope's limits beside its counters, as one request meets them: does it fit, what is left, how long to wait."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kilocard.tenancy.budget import Budget
from kilocard.tenancy.limits import (
    CONCURRENCY,
    REQUESTS_PER_MINUTE,
    TOKENS_PER_DAY,
    TOKENS_PER_MINUTE,
    TOKENS_PER_MONTH,
    Scope,
    Standing,
)
from kilocard.tenancy.periods import Periods
from kilocard.tenancy.window import Window

#: seconds to wait for a slot: nobody knows when a running request ends
SLOT_WAIT = 1.0


class Account:
    """The counters of one scope. All are kept whichever limits are set, so that a new limit finds its minute."""

    __slots__ = ("in_flight", "requests", "tokens")

    def __init__(self) -> None:
        self.requests = Window()
        self.tokens = Window()
        #: leases that are not settled; only taking and settling one changes it
        self.in_flight = 0

    def turn(self, second: int) -> None:
        self.requests.turn(second)
        self.tokens.turn(second)


class Block(NamedTuple):
    """A limit that a request does not fit under now."""

    kind: str
    limit: int
    scope: Scope
    #: seconds until it would fit if nothing else came
    wait: float


class Place:
    """A scope, its account, and the budgets that pay for a request. A lease keeps its places until it is settled."""

    __slots__ = ("account", "day", "month", "scope")

    def __init__(self, scope: Scope, account: Account, day: Budget | None, month: Budget | None) -> None:
        self.scope = scope
        self.account = account
        #: None: no such budget
        self.day = day
        self.month = month

    def fits(self, tokens: int) -> bool:
        rpm, tpm, concurrency, per_day, per_month = limits_of(self.scope)
        account, day, month = self.account, self.day, self.month
        return not (
            (rpm is not None and account.requests.total >= rpm)
            or (concurrency is not None and account.in_flight >= concurrency)
            or (tpm is not None and account.tokens.total + tokens > tpm)
            or (per_day is not None and day is not None and day.used + tokens > per_day)
            or (per_month is not None and month is not None and month.used + tokens > per_month)
        )

    def blocks(self, tokens: int, now: float, wall: float, dates: Periods) -> Iterator[Block]:
        """Each limit that the request does not fit under. None of them is less than the request as a whole."""
        rpm, tpm, concurrency, per_day, per_month = limits_of(self.scope)
        account, day, month, scope = self.account, self.day, self.month, self.scope
        if rpm is not None and (over := account.requests.total + 1 - rpm) > 0:
            yield Block(REQUESTS_PER_MINUTE, rpm, scope, account.requests.wait(over, now))
        if tpm is not None and (over := account.tokens.total + tokens - tpm) > 0:
            yield Block(TOKENS_PER_MINUTE, tpm, scope, account.tokens.wait(over, now))
        if concurrency is not None and account.in_flight >= concurrency:
            yield Block(CONCURRENCY, concurrency, scope, SLOT_WAIT)
        if per_day is not None and day is not None and day.used + tokens > per_day:
            yield Block(TOKENS_PER_DAY, per_day, scope, dates.day_end - wall)
        if per_month is not None and month is not None and month.used + tokens > per_month:
            yield Block(TOKENS_PER_MONTH, per_month, scope, dates.month_end - wall)

    def requests_left(self, now: float) -> Standing | None:
        limit = self.scope.limits.requests_per_minute
        if limit is None:
            return None
        window = self.account.requests
        return Standing(limit, max(0, limit - window.total), window.reset(now))

    def tokens_left(self, now: float, wall: float, dates: Periods) -> Standing | None:
        """The tightest of minute, day and month."""
        _, tpm, _, per_day, per_month = limits_of(self.scope)
        best = None
        if tpm is not None:
            window = self.account.tokens
            best = Standing(tpm, max(0, tpm - window.total), window.reset(now))
        if per_day is not None and self.day is not None:
            best = tighter(best, Standing(per_day, max(0, per_day - self.day.used), dates.day_end - wall))
        if per_month is not None and self.month is not None:
            best = tighter(best, Standing(per_month, max(0, per_month - self.month.used), dates.month_end - wall))
        return best

    def take(self, tokens: int) -> None:
        """Reserve. The account has been turned to the current second."""
        account = self.account
        account.in_flight += 1
        account.requests.add(1)
        account.tokens.add(tokens)
        if self.day is not None:
            self.day.held += tokens
        if self.month is not None:
            self.month.held += tokens

    def put(self, second: int, reserved: int, used: int | None) -> None:
        """Settle what was taken at `second`. What was used beyond it is charged now. None: nothing was used."""
        account = self.account
        account.in_flight -= 1
        if used is None:
            account.requests.give_back(second, 1)
        spent = used or 0
        if spent > reserved:
            account.tokens.add(spent - reserved)
        else:
            account.tokens.give_back(second, reserved - spent)
        for budget in (self.day, self.month):
            if budget is not None:
                budget.held -= reserved
                budget.settled += spent


def tighter(one: Standing | None, other: Standing | None) -> Standing | None:
    """The one with less left."""
    if one is None or other is None:
        return other if one is None else one
    return other if other.remaining < one.remaining else one


def limits_of(scope: Scope) -> tuple[int | None, int | None, int | None, int | None, int | None]:
    """In the order of limits.KINDS."""
    limits = scope.limits
    return (
        limits.requests_per_minute,
        limits.tokens_per_minute,
        limits.concurrency,
        limits.tokens_per_day,
        limits.tokens_per_month,
    )
