"""The scripts decide as Book does, step by step, on a real Redis whose clock the test sets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kilocard.spec.model import TenantLimits
from kilocard.stores import redis_scripts as scripts
from kilocard.stores.redis_scripts import Form, number
from kilocard.tenancy.book import Book
from kilocard.tenancy.ledger import Ledger
from kilocard.tenancy.limits import Ask, Denied, Grant, Scope
from kilocard.tenancy.periods import periods
from kilocard.tenancy.shared import denied, granted, known_of
from redis_server import Caller, RedisServer

#: two minutes before midnight, 29 November
BEGIN = 1_795_996_680


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Caller]:
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    server.start()
    caller = Caller(server.port)
    for command in scripts.loads():
        caller.raw(command)
    yield caller
    caller.close()
    server.crash()


class Store:
    """The scripts as `RedisLimits` uses them, at a time that the test says. Two gateways take turns."""

    def __init__(self, redis: Caller) -> None:
        self.redis = redis
        redis("FLUSHALL")
        self.ledgers = {"one": Ledger[Form](), "two": Ledger[Form]()}
        for gateway in self.ledgers:
            redis.raw(scripts.begin(gateway, 1))
        self.ids = 0

    def ask(self, gateway: str, ask: Ask, now: float) -> Grant | Denied:
        ledger = self.ledgers[gateway]
        dates = periods(ask.wall)
        form = at(now, Form(ask.scopes, dates, tuple(ledger.seat(s, dates) for s in ask.scopes), gateway, 60.0))
        reply = self.redis.raw(form.reserve + number(ask.tokens) + number(1))
        assert isinstance(reply, bytes), reply
        numbers = list(map(int, reply[2:].split()))
        store_now = numbers[0] + numbers[1] / 1e6
        if reply[:1] == b"D":
            return denied(ask, form, ask.tokens, numbers[2:], store_now)
        self.ids += 1
        ledger.take(self.ids, form, ask.tokens, numbers[0])
        return granted(self.ids, ask, form, ask.tokens, known_of(numbers[2:], len(ask.scopes)), store_now)

    def settle(self, gateway: str, id: int | str, used: int | None, now: float) -> None:
        lease = self.ledgers[gateway].settle(id, used, int(now))
        if lease is None:
            return
        form = lease.terms
        form = at(now, Form(form.scopes, form.dates, form.seats, gateway, 60.0))
        words = (lease.second, int(used is None), lease.tokens, used or 0, 1)
        assert self.redis.raw(form.settle + b"".join(map(number, words))) == b"S"


def at(now: float, form: Form) -> Form:
    """The same commands at another time than the server's."""
    for name in ("reserve", "settle", "charge"):
        words = getattr(form, name)
        micros = b"%d" % round(now * 1e6)
        setattr(form, name, words.replace(b"\r\n$1\r\n0\r\n", b"\r\n$%d\r\n%b\r\n" % (len(micros), micros), 1))
    return form


def some(least: int, most: int) -> st.SearchStrategy[int | None]:
    return st.none() | st.integers(least, most)


#: one or two limits at a time, so that each is met
LIMITS = st.one_of(
    st.builds(TenantLimits, requests_per_minute=st.integers(1, 5), concurrency=some(2, 4)),
    st.builds(TenantLimits, tokens_per_minute=st.integers(20, 60), tokens_per_day=some(60, 120)),
    st.builds(TenantLimits, some(2, 7), some(30, 80), some(1, 5), some(60, 300), some(60, 400)),
)
STEP = st.one_of(
    st.tuples(
        st.just("wait"), st.sampled_from([0.5, 1, 9.25, 29.5, 30, 31, 59.999, 60, 61, 62, 200]) | st.floats(0, 30),
        st.just(0), st.just(False),
    ),
    st.tuples(st.just("ask"), st.integers(0, 25), st.integers(0, 20), st.booleans()),
    st.tuples(st.just("ask"), st.integers(0, 3), st.integers(0, 3), st.booleans()),
    st.tuples(st.just("settle"), st.none() | st.integers(0, 60), st.integers(0, 5), st.booleans()),
)  # fmt: skip


@settings(
    max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(LIMITS, LIMITS, st.lists(STEP, min_size=10, max_size=40))
def test_the_script_and_the_book_say_the_same(
    redis: Caller, limits: TenantLimits, of_m: TenantLimits, steps: list[tuple[str, object, int, bool]]
) -> None:
    everywhere, for_m = Scope("t", "", limits), Scope("t", "m", of_m)
    store, book = Store(redis), Book()
    now = float(BEGIN)
    running: list[tuple[str, Grant, Grant]] = []
    for turn, (what, amount, more, flag) in enumerate(steps):
        gateway = ("one", "two")[turn % 2]
        if what == "wait":
            now = round(now + float(amount), 3)  # type: ignore[arg-type]
        elif what == "ask":
            ask = Ask((everywhere, for_m) if flag else (everywhere,), int(amount), more, more % 3 > 0, now, 60.0)  # type: ignore[call-overload]
            mine, theirs = store.ask(gateway, ask, now), book.decide(ask, now)
            same(mine, theirs)
            if isinstance(mine, Grant) and isinstance(theirs, Grant):
                running.append((gateway, mine, theirs))
        elif running:
            gateway, mine, theirs = running[more % len(running)] if flag else running.pop(more % len(running))
            if flag:  # twice
                running.remove((gateway, mine, theirs))
                store.settle(gateway, mine.id, amount, now)  # type: ignore[arg-type]
                book.settle(theirs, amount, now)  # type: ignore[arg-type]
            store.settle(gateway, mine.id, amount, now)  # type: ignore[arg-type]
            book.settle(theirs, amount, now)  # type: ignore[arg-type]
    for scope in (everywhere, for_m):
        key = f"{{kilocard}}:a:{scripts.scope_name(scope.key)}"
        assert int(redis("HGET", key, "c") or 0) == book.used(scope, now, now).in_flight  # type: ignore[arg-type]
        assert totals(redis, key) == slots(redis, key)


def same(mine: Grant | Denied, theirs: Grant | Denied) -> None:
    assert type(mine) is type(theirs)
    for one, other in ((mine.requests_left, theirs.requests_left), (mine.tokens_left, theirs.tokens_left)):
        assert (one and one[:2]) == (other and other[:2])
    if isinstance(mine, Denied) and isinstance(theirs, Denied):
        assert (mine.code, mine.message) == (theirs.code, theirs.message)
        assert mine.retry_after == (theirs.retry_after and pytest.approx(theirs.retry_after, abs=1e-3))
    elif isinstance(mine, Grant) and isinstance(theirs, Grant):
        assert mine.tokens == theirs.tokens
        for one, other in ((mine.requests_left, theirs.requests_left), (mine.tokens_left, theirs.tokens_left)):
            assert (one and one.reset) == (other and pytest.approx(other.reset, abs=1e-3))


def totals(redis: Caller, key: str) -> list[int]:
    return [int(redis("HGET", key, field) or 0) for field in ("R", "T")]  # type: ignore[arg-type]


def slots(redis: Caller, key: str) -> list[int]:
    """The same, from what each second has."""
    found = redis("HGETALL", key)
    assert isinstance(found, list)
    pairs = list(zip(found[::2], found[1::2], strict=True))
    return [
        sum(int(count) for name, count in pairs if name[:1] == kind and name[1:].isdigit())  # type: ignore[index, arg-type, union-attr]
        for kind in (b"r", b"t")
    ]


# -- how a gateway says how it stands

WIDE = Scope("t", "", TenantLimits(None, None, None, 10**6, 10**7))
MOVE = st.one_of(
    st.tuples(st.just("wait"), st.integers(0, 40), st.none()),
    st.tuples(st.sampled_from(["ask", "ask unheard", "ask alone"]), st.integers(0, 30), st.none()),
    st.tuples(st.sampled_from(["settle", "settle unheard"]), st.integers(0, 9), st.none() | st.integers(0, 50)),
    st.tuples(st.just("join"), st.just(0), st.none()),
)


def declared(redis: Caller, store: Store, gateway: str, session: int, now: float) -> None:
    ledger = store.ledgers[gateway]
    entries = list(ledger.entries.values())
    begun = redis.raw(moved(scripts.begin(gateway, session), now))
    assert isinstance(begun, bytes) and begun[:1] == b"B"
    said = scripts.declare(gateway, session, entries, int(now), 60.0)
    assert redis.raw(moved(said, now)) == b"S"
    for entry in entries:
        for part in entry.parts.values():
            part.known += part.unsaid
            part.confirmed = part.settled


def moved(words: bytes, now: float) -> bytes:
    micros = b"%d" % round(now * 1e6)
    return words.replace(b"\r\n$1\r\n0\r\n", b"\r\n$%d\r\n%b\r\n" % (len(micros), micros), 1)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(st.lists(MOVE, max_size=30), st.booleans())
def test_14_whatever_was_lost_the_store_has_what_the_gateways_have(
    redis: Caller, moves: list[tuple[str, int, int | None]], forgets: bool
) -> None:
    """An answer that was lost, an end that never arrived, what was let in without the store, or all of its memory."""
    store = Store(redis)
    sessions = {"one": 1, "two": 1}
    lost: set[str] = set()  # whose connection has ended: they join before they send anything
    now, dates = float(BEGIN - 7200), periods(BEGIN - 7200)  # all on one day
    for turn, (what, amount, used) in enumerate(moves):
        gateway = ("one", "two")[turn % 2]
        ledger = store.ledgers[gateway]
        form = Form((WIDE,), dates, (ledger.seat(WIDE, dates),), gateway, 60.0)
        if what == "wait":
            now += amount
        if what == "join" or (gateway in lost and what in {"ask", "ask unheard", "settle"}):
            sessions[gateway] += 1
            declared(redis, store, gateway, sessions[gateway], now)
            lost.discard(gateway)
        if what in {"ask unheard", "ask alone", "settle unheard"}:
            lost.add(gateway)
        if what in {"wait", "join"}:
            continue
        if what.startswith("ask"):
            store.ids += 1
            if what != "ask alone":
                reply = redis.raw(moved(form.reserve, now) + number(amount) + number(sessions[gateway]))
                assert isinstance(reply, bytes) and reply[:1] == b"G"
            if what != "ask unheard":
                ledger.take(store.ids, form, amount, int(now))
        elif ledger.leases:
            id = list(ledger.leases)[amount % len(ledger.leases)]
            lease = ledger.settle(id, used, int(now))
            assert lease is not None
            if what == "settle":
                words = (lease.second, int(used is None), lease.tokens, used or 0, sessions[gateway])
                assert redis.raw(moved(lease.terms.settle, now) + b"".join(map(number, words))) == b"S"
                ledger.confirmed(lease, used or 0)
    settled = [sum(ledger.entry(WIDE.key).part(dates.day).settled for ledger in store.ledgers.values())]
    if forgets:
        redis("FLUSHALL")
    for gateway, session in sessions.items():
        declared(redis, store, gateway, session + 1, now)
    key, budget = f"{{kilocard}}:a:{scripts.scope_name(WIDE.key)}", f"{{kilocard}}:b:{dates.day}"
    entries = [ledger.entry(WIDE.key) for ledger in store.ledgers.values()]
    for entry in entries:
        entry.turn(int(now))
    # reading turns the account too
    ledger = store.ledgers["one"]
    beat = scripts.beat("one", sessions["one"] + 1, round(now * 1e6), 5_000_000, 0, [ledger.seat(WIDE, dates)])
    reply = redis.raw(moved(beat, now))
    assert isinstance(reply, bytes)
    known = known_of(list(map(int, reply.split()[5:])), 1)[0]
    assert known.requests == sum(entry.requests.total for entry in entries)
    assert known.tokens == sum(entry.tokens.total for entry in entries)
    assert known.in_flight == sum(entry.in_flight for entry in entries)
    assert known.day_held == sum(entry.part(dates.day).held for entry in entries)
    assert totals(redis, key) == slots(redis, key)
    if not forgets:
        assert [known.day_settled] == settled
    else:
        assert known.day_settled <= settled[0]
    assert redis("HGET", budget, "h" + scripts.scope_name(WIDE.key)) in {None, b"%d" % known.day_held}


def test_15_commands_of_a_session_that_is_over_change_nothing(redis: Caller) -> None:
    """They may have lain in a buffer while the store hung."""
    store, dates = Store(redis), periods(BEGIN)
    ledger = store.ledgers["one"]
    form = Form((WIDE,), dates, (ledger.seat(WIDE, dates),), "one", 60.0)
    assert redis.raw(scripts.begin("one", 2)) != b"J"
    before = redis("HGETALL", f"{{kilocard}}:a:{scripts.scope_name(WIDE.key)}")
    for late in (
        form.reserve + number(5) + number(1),
        form.charge + number(5) + number(1),
        form.settle + b"".join(map(number, (BEGIN, 0, 5, 9, 1))),
        scripts.declare("one", 1, [ledger.entry(WIDE.key)], BEGIN, 60.0),
        scripts.beat("one", 1, 0, 5_000_000, 0, []),
        scripts.leave("one", 1),
        scripts.begin("one", 1),
        scripts.begin("one", 2),
    ):
        assert redis.raw(late) == b"J"
    assert redis("HGETALL", f"{{kilocard}}:a:{scripts.scope_name(WIDE.key)}") == before
    assert redis.raw(form.reserve + number(5) + number(2)) != b"J"
