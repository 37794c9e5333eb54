"""The book of one process: what every tenant has used, holds, and may still have. Exact, in memory, pure."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from kilocard.tenancy.budget import Budget, BudgetKey
from kilocard.tenancy.denial import exceeding, later, never
from kilocard.tenancy.limits import Ask, Denied, Done, Grant, Scope, Standing, Used
from kilocard.tenancy.periods import Periods, periods
from kilocard.tenancy.place import Account, Block, Place, tighter

_NO_PERIOD = Periods("", "", 0, 0, "")


class Book:
    """A LimitStore in memory. It decides at once.

    The bound: what is charged to any 60 s, and to a day's or month's budget, never passes the limit by a token, but for
    requests whose engine used more than was reserved; that excess is charged when it is known, and nothing else is let
    in until there is room again. Limits come with each Ask: a changed cluster file needs no word here.

    Its memory: one account for each scope that ever asked, a lease for each request that runs.
    """

    def __init__(self) -> None:
        self._accounts: dict[tuple[str, str], Account] = {}
        #: the last place of each scope; good for its limits and its day
        self._places: dict[tuple[str, str], Place] = {}
        self._budgets: dict[BudgetKey, Budget] = {}
        #: by the grant's id: the second and the tokens of the reservation, and where they were taken
        self._leases: dict[int | str, tuple[int, int, list[Place]]] = {}
        self._ids = itertools.count(1)
        self._dates = _NO_PERIOD
        self._unsaved: dict[BudgetKey, int] = {}

    # -- LimitStore

    def reserve(self, ask: Ask, now: float, done: Done) -> None:
        done(self.decide(ask, now))

    def decide(self, ask: Ask, now: float) -> Grant | Denied:
        """All scopes have room and the request takes it, or nothing changes."""
        tokens = ask.tokens
        second = int(now)
        dates = self._dates_at(ask.wall)
        places = []
        fits = True
        for scope in ask.scopes:
            place = self._places.get((scope[0], scope[1]))
            if place is None or place.dates is not dates or place.scope is not scope:
                place = self._place(scope, dates)
            place.account.turn(second)
            fits = fits and place.fits(tokens)
            places.append(place)
        if not fits:
            return self._denied(ask, tokens, now, places)
        for place in places:
            place.take(tokens)
        number = next(self._ids)
        self._leases[number] = (second, tokens, places)
        # Half the cost of Grant(…), for each request.
        return tuple.__new__(Grant, (number, ask, tokens, *_left(places, now, ask.wall)))

    def settle(self, grant: Grant, tokens: int | None, now: float) -> None:
        lease = self._leases.pop(grant.id, None)
        if lease is None:
            return  # settled before
        taken, reserved, places = lease
        second = int(now)
        for place in places:
            place.account.turn(second)
            place.put(taken, reserved, tokens)
            if tokens and (place.day is not None or place.month is not None):
                self._to_save(place, tokens)

    def used(self, scope: Scope, now: float, wall: float) -> Used:
        dates = self._dates_at(wall)
        day, month = (
            0 if budget is None else budget.used
            for budget in (self._budgets.get(BudgetKey(*scope.key, period)) for period in (dates.day, dates.month))
        )
        account = self._accounts.get(scope.key)
        if account is None:
            return Used(0, 0, 0, day, month)
        account.turn(int(now))
        return Used(account.in_flight, account.requests.total, account.tokens.total, day, month)

    # -- budgets that outlive the process

    @property
    def has_unsaved(self) -> bool:
        return bool(self._unsaved)

    def take_unsaved(self) -> dict[BudgetKey, int]:
        """What was settled on budgets since the last call, to be added to a store."""
        unsaved, self._unsaved = self._unsaved, {}
        return unsaved

    def put_back(self, unsaved: Mapping[BudgetKey, int]) -> None:
        """It could not be saved: it is unsaved again."""
        for key, tokens in unsaved.items():
            self._unsaved[key] = self._unsaved.get(key, 0) + tokens

    def correct(self, totals: Mapping[BudgetKey, int]) -> None:
        """What the store holds now, in which other processes' use may be. What is unsaved here comes on top."""
        for key, tokens in totals.items():
            self._budget(key).settled = tokens + self._unsaved.get(key, 0)

    # -- inside

    def _to_save(self, place: Place, tokens: int) -> None:
        for budget in (place.day, place.month):
            if budget is not None:
                self._unsaved[budget.key] = self._unsaved.get(budget.key, 0) + tokens

    def _place(self, scope: Scope, dates: Periods) -> Place:
        tenant, model, limits = scope
        account = self._accounts.get((tenant, model))
        if account is None:
            account = self._accounts[tenant, model] = Account()
        place = self._places[tenant, model] = Place(
            scope,
            account,
            dates,
            None if limits.tokens_per_day is None else self._budget(BudgetKey(tenant, model, dates.day)),
            None if limits.tokens_per_month is None else self._budget(BudgetKey(tenant, model, dates.month)),
        )
        return place

    def _budget(self, key: BudgetKey) -> Budget:
        budget = self._budgets.get(key)
        if budget is None:
            budget = self._budgets[key] = Budget(key, 0)
        return budget

    def _dates_at(self, wall: float) -> Periods:
        dates = self._dates
        if not dates.day_end - 86_400 <= wall < dates.day_end:
            dates = self._dates = periods(wall)
            # A lease keeps its own budgets, so those of closed periods can go while requests still run.
            self._budgets = {key: it for key, it in self._budgets.items() if not dates.closed(key.period)}
            self._places.clear()
        return dates

    def _denied(self, ask: Ask, tokens: int, now: float, places: list[Place]) -> Denied:
        left = _left(places, now, ask.wall)
        found = exceeding(ask, tokens)
        if found is not None:
            return never(ask, found, left)
        blocks: list[Block] = []
        for place in places:
            blocks += place.blocks(tokens, now, ask.wall)
        return later(ask, blocks, left)


def _left(places: list[Place], now: float, wall: float) -> tuple[Standing | None, Standing | None]:
    """The tightest limit of requests, and of tokens."""
    requests, tokens = places[0].left(now, wall)
    for place in places[1:]:
        more = place.left(now, wall)
        requests, tokens = tighter(requests, more[0]), tighter(tokens, more[1])
    return requests, tokens
