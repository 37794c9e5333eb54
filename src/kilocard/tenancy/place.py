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

    __slots__ = ("_second", "in_flight", "requests", "tokens")

    def __init__(self) -> None:
        self._second = 0
        self.requests = Window()
        self.tokens = Window()
        #: leases that are not settled; only taking and settling one changes it
        self.in_flight = 0

    def turn(self, second: int) -> None:
        if second > self._second:
            self._second = second
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
    """A scope, its account, and the budgets of one day and month. A lease keeps its places until it is settled."""

    __slots__ = ("_concurrency", "_per_day", "_per_month", "_rpm", "_tpm", "account", "dates", "day", "month", "scope")

    def __init__(
        self, scope: Scope, account: Account, dates: Periods, day: Budget | None, month: Budget | None
    ) -> None:
        self.scope = scope
        self.account = account
        self.dates = dates
        #: None: no such budget
        self.day = day
        self.month = month
        # Found once rather than for each request: it is asked for them a few times a request.
        self._rpm, self._tpm, self._concurrency, self._per_day, self._per_month = limits_of(scope)

    def fits(self, tokens: int) -> bool:
        account, day, month = self.account, self.day, self.month
        return not (
            (self._rpm is not None and account.requests.total >= self._rpm)
            or (self._concurrency is not None and account.in_flight >= self._concurrency)
            or (self._tpm is not None and account.tokens.total + tokens > self._tpm)
            or (day is not None and self._per_day is not None and day.settled + day.held + tokens > self._per_day)
            or (
                month is not None
                and self._per_month is not None
                and month.settled + month.held + tokens > self._per_month
            )
        )

    def blocks(self, tokens: int, now: float, wall: float) -> Iterator[Block]:
        """Each limit that the request does not fit under. None of them is less than the request as a whole."""
        account, day, month, scope, dates = self.account, self.day, self.month, self.scope, self.dates
        rpm, tpm, concurrency = self._rpm, self._tpm, self._concurrency
        if rpm is not None and (over := account.requests.total + 1 - rpm) > 0:
            yield Block(REQUESTS_PER_MINUTE, rpm, scope, account.requests.wait(over, now))
        if tpm is not None and (over := account.tokens.total + tokens - tpm) > 0:
            yield Block(TOKENS_PER_MINUTE, tpm, scope, account.tokens.wait(over, now))
        if concurrency is not None and account.in_flight >= concurrency:
            yield Block(CONCURRENCY, concurrency, scope, SLOT_WAIT)
        if day is not None and self._per_day is not None and day.used + tokens > self._per_day:
            yield Block(TOKENS_PER_DAY, self._per_day, scope, dates.day_end - wall)
        if month is not None and self._per_month is not None and month.used + tokens > self._per_month:
            yield Block(TOKENS_PER_MONTH, self._per_month, scope, dates.month_end - wall)

    def left(self, now: float, wall: float) -> tuple[Standing | None, Standing | None]:
        """How the limits stand: of requests, and of tokens the tightest of minute, day and month. The account has been
        turned to the current second."""
        account, rpm, tpm, day, month = self.account, self._rpm, self._tpm, self.day, self.month
        requests = tokens = None
        if rpm is not None:
            requests = account.requests.standing(rpm, now)
        if tpm is not None:
            tokens = account.tokens.standing(tpm, now)
        if day is not None and self._per_day is not None:
            tokens = tighter(tokens, _standing(self._per_day, day.used, self.dates.day_end - wall))
        if month is not None and self._per_month is not None:
            tokens = tighter(tokens, _standing(self._per_month, month.used, self.dates.month_end - wall))
        return requests, tokens

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
        elif spent < reserved:
            account.tokens.give_back(second, reserved - spent)
        if self.day is not None:
            self.day.settle(reserved, spent)
        if self.month is not None:
            self.month.settle(reserved, spent)


def _standing(limit: int, used: int, reset: float) -> Standing:
    return Standing(limit, max(0, limit - used), reset)


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
