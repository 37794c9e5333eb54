"""The ledger in a real PostgreSQL: each request once, two gateways at a time, the same answers as SQLite gives."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from kilocard.core.errors import StoreError
from kilocard.stores.batches import Unwritable
from kilocard.stores.usage_postgres import PostgresLedger, check, read
from kilocard.stores.usage_sqlite import SqliteLedger
from kilocard.stores.usage_sqlite import read as read_sqlite
from kilocard.stores.usage_tables import COLUMNS
from kilocard.tenancy.usage import Record, Tokens
from kilocard.tenancy.usage_report import DAY, DIMENSIONS, Question, total
from postgres_server import PostgresServer, postgres

#: 2026-11-28T00:00:00Z
START = 20_785 * DAY


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres() as one:
        yield one


@pytest.fixture
def url(server: PostgresServer) -> str:
    with psycopg.connect(server.url) as connection:
        connection.execute("DROP TABLE IF EXISTS kilocard_usage, kilocard_usage_daily")
    return server.url


def records(count: int, seed: int = 1) -> list[Record]:
    rng = random.Random(seed)
    found = []
    for number in range(count):
        ended = rng.uniform(0, 4 * DAY)
        tokens = Tokens(rng.randrange(5000), rng.randrange(500), rng.randrange(100), rng.random() < 0.1)
        found.append(
            Record(
                ended - 2, ended, b"kc-%x-%x" % (seed, number), b"", None, rng.choice(["a", "b", 'q" \u2028']), "m",
                rng.choice(["m", "读", "=1"]), "/v1/completions", True, 10, rng.choice(["p", "q"]), "p/0", 1,
                rng.choice(["ok", "ok", "client_gone", "timeout"]), rng.choice([200, 0]), "", tokens, 0.0,
                ended - rng.random() if rng.random() < 0.8 else 0.0,
            )
        )  # fmt: skip
    return found


def test_it_answers_as_sqlite_does(url: str, tmp_path: Path) -> None:
    there, here = PostgresLedger(url), SqliteLedger(tmp_path / "k.db")
    everything = records(300)
    for batch in (everything[:120], everything[120:]):
        here.write(here.prepare(batch, START))
        for _ in range(2):  # each batch twice, as after a commit whose answer was lost
            there.write(there.prepare(batch, START))
    spans = [(None, None), (START + 1.5 * DAY, None), (None, START + 2.25 * DAY), (START + DAY / 3, START + DAY / 2)]
    for (since, until), by in itertools.product(spans, [(), ("day",), ("model", "tenant"), DIMENSIONS]):
        question = Question(by, since, until)
        mine = {line.group: line[1:] for line in read(url, question)}
        assert mine == {line.group: pytest.approx(line[1:]) for line in read_sqlite(tmp_path / "k.db", question)}
    assert total(read(url, Question(("tenant",), tenant="b"))).requests > 0
    there.close()
    here.close()


def test_two_gateways_start_at_once_and_add_to_the_same_days(url: str) -> None:
    errors: list[Exception] = []

    def gateway(seed: int) -> None:
        ledger = PostgresLedger(url)
        try:
            for _ in range(20):
                ledger.write(ledger.prepare(records(30, seed * 1000 + _), START))
        except Exception as error:
            errors.append(error)
        ledger.close()

    threads = [threading.Thread(target=gateway, args=(seed,)) for seed in range(1, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert total(read(url, Question(("day", "tenant")))).requests == 3 * 20 * 30


def test_a_connection_that_was_cut_is_opened_again(url: str) -> None:
    ledger = PostgresLedger(url)
    ledger.write(ledger.prepare(records(1, 1), START))
    with psycopg.connect(url) as connection:
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
    batch = ledger.prepare(records(1, 2), START)
    with pytest.raises(psycopg.OperationalError):
        ledger.write(batch)
    ledger.write(batch)
    assert total(read(url, Question(()))).requests == 2
    ledger.close()


def test_a_server_that_vanishes_is_noticed_within_half_a_minute_unless_the_url_says_otherwise(url: str) -> None:
    for more, idle in (("", "10"), ("?keepalives_idle=77", "77")):
        connection = PostgresLedger(url + more)._connected()
        said = connection.info.get_parameters()
        assert (said["keepalives_idle"], said["tcp_user_timeout"]) == (idle, "10000")
        connection.close()


def test_what_postgres_can_not_hold(url: str) -> None:
    ledger = PostgresLedger(url)
    (one,) = records(1)
    ledger.write(ledger.prepare([one._replace(model="a\0b")], START))
    assert [line.group for line in read(url, Question(("model",)))] == [("a�b",)]
    with pytest.raises(Unwritable):
        ledger.write(ledger.prepare([one._replace(request_id=b"other", attempts=2**40)], START))
    ledger.write(ledger.prepare(records(3), START))  # and it goes on
    ledger.close()


def test_old_rows_go_and_their_days_stay(url: str) -> None:
    ledger = PostgresLedger(url, keep=DAY)
    ledger.write(ledger.prepare(records(50), START))
    ledger.tidy(START + 3 * DAY)
    with psycopg.connect(url) as connection:
        (oldest,) = connection.execute("SELECT min(extract(epoch FROM ended)) FROM kilocard_usage").fetchone() or (0,)
    assert oldest > START + 2 * DAY
    assert total(read(url, Question(("day",)))).requests == 50
    ledger.close()


def test_reading_changes_nothing_and_says_what_is_wrong(url: str) -> None:
    assert read(url, Question(())) == []
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT to_regclass('kilocard_usage')").fetchone() == (None,)
    with pytest.raises(StoreError, match="can't be read"):
        read("postgresql://kilocard@127.0.0.1:1/nowhere", Question(()))
    with pytest.raises(StoreError, match=r"gateway\.usage\.database"):
        check("postgresql://host:port:more/x?y=z")


@pytest.mark.parametrize(
    "wrong",
    [
        "postgresql://u:pass word@h/x",
        "postgresql://u:password%zz@h/x",
        "postgresql://u:password@[::1/x",
        "mysql://u:password@h/x",
        "postgresql:password",
        "host=h password=password",
        "postgresql://u:p@password@127.0.0.1:1/x",  # signs that are not escaped: libpq takes the rest for a host …
        "postgresql://u:password/word@127.0.0.1:1/x",  # … a port …
        "postgresql://u:17/password@127.0.0.1:1/x",  # … a database
    ],
)
def test_a_url_that_is_wrong_is_not_repeated(wrong: str) -> None:
    for ask in (check, lambda url: read(url, Question(()))):
        with pytest.raises(StoreError, match=r"gateway\.usage\.database") as caught:
            ask(wrong)
        assert "pass" not in caught.value.message.replace("password write", "")
        assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize(
    "good",
    [
        "postgresql://u:p%40ss%2Fw@h:5432/x",
        "postgres://h/x",
        "postgresql:///x?host=/run/postgresql&port=5433",
        "postgresql://h1:1,h2/x",
        "postgresql://u@[::1]/x",
    ],
)
def test_urls_that_are_right(good: str) -> None:
    check(good)


def other_database(server: PostgresServer, name: str, options: str = "") -> str:
    """A URL."""
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} {options}".encode())
    return f"{server.url.rpartition('/')[0]}/{name}"


def test_an_older_encoding_costs_characters_and_no_rows(server: PostgresServer) -> None:
    url = other_database(server, "latin", "ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
    there = PostgresLedger(url)
    there.write(there.prepare(records(100), 0.0))
    there.close()
    found = read(url, Question(("model",)))
    assert {line.group[0] for line in found} == {"m", "?", "=1"} and total(found).requests == 100
    with pytest.raises(StoreError, match="can't be read"):
        read(url, Question((), model="读"))


def test_a_table_that_is_partitioned_by_time_takes_each_request_once(server: PostgresServer) -> None:
    url = other_database(server, "parted")
    columns = ", ".join(f"{column.name} {column.postgres}" for column in COLUMNS)
    with psycopg.connect(url) as connection:
        for table in (
            f"CREATE TABLE kilocard_usage ({columns}, PRIMARY KEY (request_id, ended)) PARTITION BY RANGE (ended)",
            "CREATE TABLE kilocard_usage_all PARTITION OF kilocard_usage DEFAULT",
        ):
            connection.execute(table.encode())
    there = PostgresLedger(url, keep=1.0)
    for _ in range(2):
        there.write(there.prepare(records(100), 0.0))
    assert total(read(url, Question(()))).requests == 100
    there.tidy(START)
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT count(*) FROM kilocard_usage").fetchone() == (0,)
    there.close()


def test_a_role_that_may_create_nothing_writes_into_tables_that_are_there(server: PostgresServer) -> None:
    url = other_database(server, "strict")
    PostgresLedger(url)._connected().close()
    with psycopg.connect(url) as connection:
        connection.execute("CREATE ROLE writer LOGIN")
        connection.execute("GRANT SELECT, INSERT, UPDATE ON kilocard_usage, kilocard_usage_daily TO writer")
    there = PostgresLedger(url.replace("kilocard@", "writer@"))
    there.write(there.prepare(records(10), 0.0))
    there.close()
    assert total(read(url, Question(()))).requests == 10
