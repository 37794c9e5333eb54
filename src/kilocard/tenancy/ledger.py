"""What this gateway alone has put into a store that several gateways share, and what it last heard of the rest.

The store can lose an answer, a second, or everything. With its ledger a gateway can say at any time how it stands, and
the store makes up the difference; and while the store is away, the ledger says how much is certainly taken.
Seconds are those of the store's clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, NamedTuple, TypeVar

from kilocard.tenancy.budget import BudgetKey
from kilocard.tenancy.limits import Scope
from kilocard.tenancy.periods import Periods
from kilocard.tenancy.window import LENGTH, Window


class Known(NamedTuple):
    """What a store says of one scope: all gateways together. Budgets that are not set are -1."""

    requests: int
    tokens: int
    in_flight: int
    day_settled: int
    day_held: int
    month_settled: int
    month_held: int


class Part:
    """This gateway's part in one budget."""

    __slots__ = ("confirmed", "held", "key", "known", "others", "settled")

    def __init__(self, key: BudgetKey) -> None:
        self.key = key
        #: tokens that this gateway settled, since it started
        self.settled = 0
        #: of these, what the store is known to have
        self.confirmed = 0
        #: reserved by requests that run here
        self.held = 0
        #: settled by all, as last heard
        self.known = 0
        #: settled and held by other gateways, as last heard
        self.others = 0

    @property
    def unsaid(self) -> int:
        return self.settled - self.confirmed

    @property
    def taken(self) -> int:
        """Settled and held by all, as far as it is known here."""
        return self.others + self.settled + self.held

    def heard(self, settled: int, held: int) -> None:
        self.known = settled
        self.others = max(0, settled + held - self.settled - self.held)


class Entry:
    """One scope."""

    __slots__ = ("in_flight", "key", "others", "parts", "requests", "seen", "tokens")

    def __init__(self, key: tuple[str, str]) -> None:
        self.key = key
        self.requests = Window()
        self.tokens = Window()
        self.in_flight = 0
        #: by period
        self.parts: dict[str, Part] = {}
        #: requests, tokens and running ones of other gateways at second `seen`
        self.others = (0, 0, 0)
        self.seen = 0

    def turn(self, second: int) -> None:
        self.requests.turn(second)
        self.tokens.turn(second)

    @property
    def speaks(self) -> bool:
        """Is there anything to say of it?"""
        return bool(self.in_flight or self.requests.total or self.tokens.total or self.parts)

    def part(self, period: str) -> Part:
        part = self.parts.get(period)
        if part is None:
            part = self.parts[period] = Part(BudgetKey(*self.key, period))
        return part

    def buckets(self, second: int) -> Iterator[tuple[int, int, int]]:
        """What was charged here in each second of the last minute: second, requests, tokens."""
        self.turn(second)
        for at in range(self.requests.second - LENGTH, self.requests.second + 1):
            requests, tokens = self.requests.at(at), self.tokens.at(at)
            if requests or tokens:
                yield at, requests, tokens


class Seat(NamedTuple):
    """One scope of a request, on one day."""

    scope: Scope
    entry: Entry
    #: None: no such budget
    day: Part | None
    month: Part | None


class Terms:
    """What holds for requests with the same scopes, on one day."""

    __slots__ = ("dates", "scopes", "seats")

    def __init__(self, scopes: tuple[Scope, ...], dates: Periods, seats: tuple[Seat, ...]) -> None:
        self.scopes = scopes
        self.dates = dates
        self.seats = seats


AnyTerms = TypeVar("AnyTerms", bound=Terms)


class Lease(Generic[AnyTerms]):
    """A request that runs."""

    __slots__ = ("second", "terms", "tokens")

    def __init__(self, terms: AnyTerms, second: int, tokens: int) -> None:
        self.terms = terms
        self.second = second
        self.tokens = tokens


class Ledger(Generic[AnyTerms]):
    """Its memory: an entry for each scope that ever asked, a lease for each request that runs."""

    def __init__(self) -> None:
        self.entries: dict[tuple[str, str], Entry] = {}
        self.leases: dict[int | str, Lease[AnyTerms]] = {}

    def entry(self, key: tuple[str, str]) -> Entry:
        entry = self.entries.get(key)
        if entry is None:
            entry = self.entries[key] = Entry(key)
        return entry

    def seat(self, scope: Scope, dates: Periods) -> Seat:
        entry = self.entry(scope.key)
        for period in [period for period in entry.parts if dates.closed(period)]:
            del entry.parts[period]  # a lease keeps its own
        limits = scope.limits
        return Seat(
            scope,
            entry,
            None if limits.tokens_per_day is None else entry.part(dates.day),
            None if limits.tokens_per_month is None else entry.part(dates.month),
        )

    def take(self, id: int, terms: AnyTerms, tokens: int, second: int) -> None:
        """A request is let in."""
        self.leases[id] = Lease(terms, second, tokens)
        for _, entry, day, month in terms.seats:
            entry.turn(second)
            entry.requests.add(1)
            entry.tokens.add(tokens)
            entry.in_flight += 1
            if day is not None:
                day.held += tokens
            if month is not None:
                month.held += tokens

    def settle(self, id: int | str, used: int | None, second: int) -> Lease[AnyTerms] | None:
        """It has ended. None: it is not known, or was settled before."""
        lease = self.leases.pop(id, None)
        if lease is None:
            return None
        reserved, spent = lease.tokens, used or 0
        for _, entry, day, month in lease.terms.seats:
            entry.turn(second)
            entry.in_flight -= 1
            if used is None:
                entry.requests.give_back(lease.second, 1)
            if spent > reserved:
                entry.tokens.add(spent - reserved)
            else:
                entry.tokens.give_back(lease.second, reserved - spent)
            for part in (day, month):
                if part is not None:
                    part.held -= reserved
                    part.settled += spent
        return lease

    def redate(self, id: int, second: int) -> None:
        """The store has put a request that was let in here into another second than was thought."""
        lease = self.leases.get(id)
        if lease is None or lease.second == second:
            return
        for _, entry, _, _ in lease.terms.seats:
            entry.turn(second)
            for window, count in ((entry.requests, 1), (entry.tokens, lease.tokens)):
                window.give_back(lease.second, count)
                window.add(count)
        lease.second = second

    def heard(self, seats: tuple[Seat, ...], all_known: list[Known], second: int) -> None:
        """The store has said how these stand, with all that this gateway has told it so far."""
        for (_, entry, day, month), known in zip(seats, all_known, strict=True):
            entry.turn(second)
            entry.seen = second
            entry.others = (
                max(0, known.requests - entry.requests.total),
                max(0, known.tokens - entry.tokens.total),
                max(0, known.in_flight - entry.in_flight),
            )
            if day is not None:
                day.heard(known.day_settled, known.day_held)
            if month is not None:
                month.heard(known.month_settled, known.month_held)

    def confirmed(self, lease: Lease[AnyTerms], spent: int) -> None:
        """The store has answered that it has what this request used."""
        for _, _, day, month in lease.terms.seats:
            for part in (day, month):
                if part is not None:
                    part.confirmed += spent
                    part.known += spent
