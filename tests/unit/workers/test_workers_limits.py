"""Limits that are exact across workers: the supervisor's desk, and a worker's store at the other end of the line."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from kilocard.spec.model import TenantLimits, TenantSpec
from kilocard.tenancy.book import Book
from kilocard.tenancy.limits import Ask, Denied, Grant, LimitStore, Scope, Used
from kilocard.workers import messages as words
from kilocard.workers.limit_desk import LimitDesk
from kilocard.workers.link_limits import PATIENCE, LinkLimits, share

LIMITS = TenantLimits(requests_per_minute=10, tokens_per_minute=1000, concurrency=4)
TENANTS = {"t": TenantSpec("t", limits=LIMITS)}
SCOPE = Scope("t", "", LIMITS)
ASK = Ask((SCOPE,), 10, 20, True, 0.0, 60.0)


class Fleet:
    """Workers and a desk, joined by a line that is delivered when the test says so."""

    def __init__(self, workers: int, store: LimitStore | None = None) -> None:
        self.now = 0.0
        self.book = store or Book()
        self.desk = LimitDesk(self.book, TENANTS, lambda: self.now)
        self.up: list[tuple[int, words.Message]] = []
        self.down: list[tuple[int, words.Message]] = []
        self.alone = 0
        self.stores = {life: self._store(life) for life in range(workers)}
        self.answers: list[Grant | Denied] = []

    def _store(self, life: int) -> LinkLimits:
        self.desk.join(life)
        store = LinkLimits(lambda message: self.up.append((life, message)), self._count)
        store.workers = 2
        return store

    def _count(self) -> None:
        self.alone += 1

    def ask(self, life: int) -> None:
        self.stores[life].reserve(ASK, self.now, self.answers.append)

    def deliver(self) -> None:
        while self.up or self.down:
            while self.up:
                life, message = self.up.pop(0)
                if isinstance(message, words.Reserve):
                    self.desk.reserve(life, message, self._say(life))
                elif isinstance(message, words.Settle):
                    self.desk.settle(life, message.number, message.tokens)
            while self.down:
                life, answer = self.down.pop(0)
                if isinstance(answer, words.Granted):
                    self.stores[life].granted(answer)
                elif isinstance(answer, words.Denied):
                    self.stores[life].denied(answer)

    def _say(self, life: int) -> Callable[[words.Message], None]:
        return lambda message: self.down.append((life, message))

    def used(self) -> Used:
        return self.book.used(SCOPE, self.now, 0.0)


def in_loop(body: Callable[[], None]) -> None:
    """The store arms a timer: it needs a loop, which need not run."""

    async def run() -> None:
        body()

    asyncio.run(run())


def test_four_workers_let_pass_what_one_would() -> None:
    def body() -> None:
        fleet = Fleet(4)
        for number in range(40):
            fleet.ask(number % 4)
        fleet.deliver()
        grants = [answer for answer in fleet.answers if isinstance(answer, Grant)]
        assert len(grants) == 4
        assert {answer.code for answer in fleet.answers if isinstance(answer, Denied)} == {"concurrency"}
        assert grants[0].requests_left is not None and grants[0].requests_left.remaining == 9

    in_loop(body)


def test_a_dead_workers_leases_come_back_once_and_what_they_had_reserved_stays_used() -> None:
    def body() -> None:
        fleet = Fleet(2)
        for life in (0, 0, 0, 1):
            fleet.ask(life)
        fleet.deliver()
        assert fleet.used().in_flight == 4
        fleet.desk.leave(0)
        fleet.desk.leave(0)
        assert (fleet.used().in_flight, fleet.used().tokens, fleet.used().requests) == (1, 120, 4)
        fleet.desk.settle(0, 1, None)  # a last word that was on its way
        assert (fleet.used().in_flight, fleet.used().tokens) == (1, 120)
        assert fleet.desk.leases == 1

    in_loop(body)


class Slow:
    """A book that answers when it is told to."""

    def __init__(self) -> None:
        self.book = Book()
        self.settle = self.book.settle
        self.used = self.book.used
        self.later: list[Callable[[], None]] = []

    def reserve(self, ask: Ask, now: float, done: Callable[[Grant | Denied], None]) -> None:
        self.later.append(lambda: done(self.book.decide(ask, now)))


def test_a_worker_that_dies_while_the_store_thinks_holds_nothing() -> None:
    def body() -> None:
        fleet = Fleet(1, slow := Slow())
        fleet.ask(0)
        fleet.deliver()
        fleet.desk.leave(0)
        slow.later[0]()
        assert fleet.used().in_flight == 0
        assert fleet.down == []

    in_loop(body)


def test_without_its_supervisor_a_worker_keeps_to_its_share() -> None:
    def body() -> None:
        fleet = Fleet(1)
        store = fleet.stores[0]
        fleet.ask(0)
        store.alone(fleet.now)
        for _ in range(5):
            fleet.ask(0)
        grants = [answer for answer in fleet.answers if isinstance(answer, Grant)]
        assert (len(fleet.answers), len(grants), fleet.alone) == (6, 2, 6)  # half of 4 at once
        store.settle(grants[0], 5, fleet.now)
        fleet.ask(0)
        assert isinstance(fleet.answers[-1], Grant)

    in_loop(body)


def test_an_answer_that_comes_too_late_is_given_back() -> None:
    def body() -> None:
        fleet = Fleet(1)
        fleet.ask(0)
        fleet.stores[0]._look(0.0)  # PATIENCE has passed
        assert len(fleet.answers) == 1
        fleet.now = PATIENCE
        fleet.deliver()
        assert (len(fleet.answers), fleet.used()) == (1, Used())

    in_loop(body)


def test_a_share_is_never_nothing() -> None:
    assert share(TenantLimits(requests_per_minute=100, concurrency=2), 4) == TenantLimits(25, concurrency=1)


@given(st.lists(st.tuples(st.sampled_from(["ask", "settle", "refund", "die"]), st.integers(0, 2)), max_size=60))
def test_no_lease_leaks_whatever_happens(steps: list[tuple[str, int]]) -> None:
    def body() -> None:
        fleet = Fleet(3)
        held: dict[int, list[Grant]] = {0: [], 1: [], 2: []}
        lives = {0: 0, 1: 1, 2: 2}
        fresh = 3
        for what, slot in steps:
            life = lives[slot]
            fleet.answers.clear()
            if what == "ask":
                fleet.ask(life)
                fleet.deliver()
                (answer,) = fleet.answers
                if isinstance(answer, Grant):
                    held[slot].append(answer)
            elif what == "die":
                fleet.desk.leave(life)
                held[slot] = []
                lives[slot] = fresh
                fleet.stores[fresh] = fleet._store(fresh)
                fresh += 1
            elif held[slot]:
                fleet.stores[life].settle(held[slot].pop(), None if what == "refund" else 7, fleet.now)
                fleet.deliver()
            used = fleet.used()
            assert used.in_flight == sum(map(len, held.values())) == fleet.desk.leases
            assert used.in_flight <= 4
            assert used.requests <= 10
            assert used.tokens <= 1000

    in_loop(body)
