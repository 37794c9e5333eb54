"""Limits that several gateways share through Redis or Valkey: exact while it answers, cautious while it does not.

Each request is one script there and one answer back (lua/reserve.lua); its end is told without waiting. What this
gateway did is also in its own ledger, so that nothing depends on the store's memory: after each loss of the connection
it joins anew and says how it stands (lua/declare.lua). Meanwhile it decides alone, with its part of each limit.

    AWAY ──connected──▶ JOINING ──declared──▶ SETTLING ──all gateways are back──▶ SHARED
      ◀── an answer is late, an error, the connection breaks ──┴──────────────────────┘
"""

from __future__ import annotations

import itertools
import logging
import os
import random
import time
from collections.abc import Callable
from enum import Enum

from kilocard.stores.redis_asked import GRANTED, Charge, Reserve, Settle
from kilocard.stores.redis_keeper import SILENT, Keeper
from kilocard.stores.redis_link import RedisLink, Waiting
from kilocard.stores.redis_scripts import Form, number
from kilocard.stores.redis_url import parse
from kilocard.stores.resp import Reply, ReplyError
from kilocard.tenancy.alone import Alone
from kilocard.tenancy.ledger import Entry, Ledger, Part, Seat
from kilocard.tenancy.limits import Ask, Done, Grant, Scope, Used
from kilocard.tenancy.periods import Periods, periods
from kilocard.tenancy.shared import denied, granted, known_of
from kilocard.tenancy.store_status import StoreStatus
from kilocard.tenancy.window import LENGTH

log = logging.getLogger("kilocard.limits")

#: seconds that a request waits for the store
PATIENCE = 0.1
#: seconds that the news of a request's end may wait for another command to travel with
SETTLE_WITHIN = 0.002


class State(Enum):
    #: no connection: decisions are made here and remembered
    AWAY = "away"
    #: this gateway says how it stands; what happens meanwhile is told afterwards
    JOINING = "joining"
    #: others have not said yet how they stand: decisions are made here and told at once
    SETTLING = "settling"
    #: decisions are made in the store
    SHARED = "shared"


_SAYS_LATER = (State.AWAY, State.JOINING)


class RedisLimits:
    """A LimitStore, and a part of a gateway (or of a supervisor that counts for several workers).

    `url` as in redis_url.py. `wall` is Unix seconds, `clock` monotonic ones, the clock of those who call.
    `patience`: seconds that a request waits; `silent`: after which a gateway counts as dead.
    Raises UsageError for a URL that makes no sense; that nobody answers there is no error.
    """

    def __init__(
        self,
        url: str,
        *,
        patience: float = PATIENCE,
        silent: float = SILENT,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,  # noqa: TID251  # budgets go by the calendar
        rng: random.Random | None = None,
    ) -> None:
        self.url = parse(url)
        self.gateway = os.urandom(8).hex()
        self.ledger: Ledger[Form] = Ledger()
        self.state = State.AWAY
        self.patience = patience
        self._clock = clock
        self._wall = wall
        self._forms: dict[tuple[str, str], Form] = {}
        #: the last scope of each name that was asked for, and on which day
        self.scopes: dict[tuple[str, str], Scope] = {}
        self._dates: Periods | None = None
        self._ids = itertools.count(1)
        self._link: RedisLink | None = None
        self.session = 0
        self._tail = number(0)
        self._alone = Alone()
        #: scopes of which the store may have more than the ledger: an answer was lost, or an end was not told
        self.unsure: set[tuple[str, str]] = set()
        #: to be told when the store knows how this gateway stands
        self._later: list[Waiting] = []
        #: the store's clock less ours, in seconds
        self._ahead = wall() - clock()
        #: as last heard, this one included
        self.gateways = 1
        #: seconds; the longest that a request may last, as last asked
        self.lasts = 0.0
        self.decided_alone = 0
        self.errors = 0
        self.keeper = Keeper(self, clock, rng or random.Random(), silent)  # noqa: S311  # pauses are no secret

    # -- Part

    async def start(self) -> None:
        """Waits a moment for the store, and goes on without it."""
        await self.keeper.start()

    async def close(self) -> None:
        await self.keeper.close()

    # -- LimitStore

    def reserve(self, ask: Ask, now: float, done: Done) -> None:
        form = self.form(ask)
        id = next(self._ids)
        link = self._link
        if self.state is not State.SHARED or link is None:
            self.decide(id, ask, form, done)
            return
        tokens = ask.tokens
        command = form.reserve + number(tokens) + self._tail
        link.send(Reserve(command, now + self.patience, self, id, ask, form, tokens, done))

    def settle(self, grant: Grant, tokens: int | None, now: float) -> None:
        lease = self.ledger.settle(grant.id, tokens, int(now + self._ahead))
        if lease is None:
            return  # settled before
        self._alone.settle(grant.id, tokens, now + self._ahead)
        if self.state in _SAYS_LATER:
            self.doubt(lease.terms)
        if self.state is State.AWAY:
            return
        back, spent = (1, 0) if tokens is None else (0, tokens)
        command = b"".join(
            (lease.terms.settle, number(lease.second), number(back), number(lease.tokens), number(spent), self._tail)
        )
        self._tell(Settle(command, now + self.patience, self, lease, spent))

    def used(self, scope: Scope, now: float, wall: float) -> Used:
        self.scopes[scope.key] = scope
        second = int(now + self._ahead)
        entry = self.ledger.entry(scope.key)
        entry.turn(second)
        others = entry.others if second <= entry.seen + LENGTH else (0, 0, 0)
        dates = self.dates(wall)
        day, month = entry.parts.get(dates.day), entry.parts.get(dates.month)
        return Used(
            entry.in_flight + others[2],
            entry.requests.total + others[0],
            entry.tokens.total + others[1],
            0 if day is None else day.taken,
            0 if month is None else month.taken,
        )

    def status(self) -> StoreStatus:
        problem = self.keeper.problem
        return StoreStatus(self.url.name, self.state.value, problem, self.gateways, self.decided_alone, self.errors)

    # -- decisions

    def decided(self, asked: Reserve, reply: bytes) -> None:
        """The store has."""
        numbers = list(map(int, reply[2:].split()))
        second = numbers[0]
        now = second + numbers[1] / 1e6
        form = asked.form
        seats = form.seats
        if reply[0] == GRANTED:
            self.ledger.take(asked.id, form, asked.tokens, second)
            all_known = known_of(numbers[2:], len(seats))
            self.ledger.heard(seats, all_known, second)
            asked.done(granted(asked.id, asked.ask, form, asked.tokens, all_known, now))
        else:
            asked.done(denied(asked.ask, form, asked.tokens, numbers[2:], now))

    def decide(self, id: int, ask: Ask, form: Form, done: Done) -> None:
        """Here, without the store."""
        self.decided_alone += 1
        clock = self._clock()
        now = clock + self._ahead
        answer = self._alone.decide(id, ask, form, self.gateways, now)
        if isinstance(answer, Grant):
            self.ledger.take(id, form, answer.tokens, int(now))
            if self.state is not State.AWAY:
                command = form.charge + number(answer.tokens) + self._tail
                self._tell(Charge(command, clock + self.patience, self, form, id))
        done(answer)

    def doubt(self, form: Form) -> None:
        """What the store has of these scopes is not known."""
        self.unsure.update(seat.entry.key for seat in form.seats)

    def refused(self, waiting: Waiting, reply: Reply) -> bool:
        """The store could not or would not. Is it final? If not, the command has been sent again."""
        link = self._link
        if isinstance(reply, ReplyError) and reply.kind == "NOSCRIPT" and link is not None and link.up:
            self.keeper.load_again(link)
            waiting.until = self._clock() + self.patience
            link.send(waiting)
            return False
        if reply == b"J":
            if waiting.command.endswith(self._tail):  # else it is of a session that is over: another has begun
                self.keeper.join_again()
        elif link is not None:
            link.drop(str(reply))
        return True

    def _tell(self, news: Waiting) -> None:
        if self.state is State.JOINING or self._link is None:
            self._later.append(news)
        else:
            self._link.send_soon(news, SETTLE_WITHIN)

    # -- for the keeper

    def clock_is(self, seconds: float) -> None:
        """By the store's clock."""
        self._ahead = seconds - self._clock()

    def micros(self) -> int:
        """The store's clock, as well as it is known here."""
        return int((self._clock() + self._ahead) * 1e6)

    def joining(self, session: int) -> None:
        """Decisions are made here from now on."""
        if self.state is State.SHARED:
            self._alone = Alone()
        self.state = State.JOINING
        self.session = session
        self._tail = number(session)

    def statement(self) -> tuple[list[Entry], list[tuple[Part, int]]]:
        """All that has to be said, and what of budgets is confirmed when it has arrived. Whatever happens from now on
        is told afterwards."""
        self._later.clear()
        second = self.micros() // 1_000_000
        entries = []
        for entry in self.ledger.entries.values():
            entry.turn(second)
            if entry.speaks or entry.key in self.unsure:
                entries.append(entry)
        return entries, [(part, part.settled) for entry in entries for part in entry.parts.values()]

    def settling(self, link: RedisLink, said: list[tuple[Part, int]]) -> None:
        """The store knows how this gateway stands."""
        self.unsure.clear()
        for part, settled in said:
            part.known += settled - part.confirmed
            part.confirmed = settled
        self.state = State.SETTLING
        self._link = link
        later, self._later = self._later, []
        until = self._clock() + self.patience
        for news in later:
            news.until = until
            link.send(news)

    def shared(self) -> None:
        """All gateways have said how they stand."""
        self.state = State.SHARED
        self._alone = Alone()

    def away(self) -> None:
        if self.state is State.SHARED:
            self._alone = Alone()
        self.state = State.AWAY
        self._link = None
        self._later.clear()

    def seats(self, keys: list[tuple[str, str]]) -> tuple[Seat, ...]:
        """To look at."""
        dates = self.dates(self._wall())
        return tuple(self.ledger.seat(self.scopes[key], dates) for key in keys)

    def dates(self, wall: float) -> Periods:
        dates = self._dates
        if dates is None or not dates.day_end - 86_400 <= wall < dates.day_end:
            dates = self._dates = periods(wall)
        return dates

    def form(self, ask: Ask) -> Form:
        scopes = ask.scopes
        last = scopes[-1]
        dates = self.dates(ask.wall)
        form = self._forms.get((last[0], last[1]))
        if form is None or form.dates is not dates or form.scopes != scopes:
            self.lasts = max(self.lasts, ask.lasts)
            for scope in scopes:
                self.scopes[scope.key] = scope
            seats = tuple(self.ledger.seat(scope, dates) for scope in scopes)
            form = self._forms[last[0], last[1]] = Form(scopes, dates, seats, self.gateway, ask.lasts)
        return form
