"""The ledger in SQLite: each request once, and days that always agree with their requests."""

from __future__ import annotations

import sqlite3
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from usage_records import record

from kilocard.core.errors import StoreError, UsageError
from kilocard.stores import usage_sqlite
from kilocard.stores.usage_sqlite import SqliteLedger, read
from kilocard.stores.usage_tables import COLUMNS
from kilocard.tenancy.usage import NOTHING, Record, Tokens
from kilocard.tenancy.usage_report import DAY, DIMENSIONS, Line, Question, total

#: the gateway's second 0, in Unix seconds: 2026-11-28T00:00:00Z
START = 20_785 * DAY


def keep(path: Path, *records: Record, utc: float = START) -> None:
    ledger = SqliteLedger(path)
    ledger.write(ledger.prepare(list(records), utc))
    ledger.close()


def rows(path: Path) -> list[sqlite3.Row]:
    store = sqlite3.connect(path)
    store.row_factory = sqlite3.Row
    try:
        return store.execute("SELECT * FROM kilocard_usage ORDER BY seq").fetchall()
    finally:
        store.close()


def test_a_row_has_what_the_request_used(tmp_path: Path) -> None:
    keep(tmp_path / "k.db", record(31, code="idle_timeout", outcome="timeout", status=504))
    assert dict(rows(tmp_path / "k.db")[0]) == {
        "seq": 1,
        "request_id": "kc-0123456789ab-1f",
        "started": START + 8.0,
        "ended": START + 10.0,
        "tenant": "team-a",
        "model": "m",
        "pool": "p",
        "replica": "p/0",
        "path": "/v1/chat/completions",
        "streamed": 1,
        "prompt_tokens": 100,
        "cached_tokens": 60,
        "output_tokens": 20,
        "estimated": 0,
        "held_s": 0.25,
        "ttft_s": 0.5,
        "duration_s": 2.0,
        "attempts": 1,
        "outcome": "timeout",
        "status": 504,
        "error_code": "idle_timeout",
    }


def test_what_there_was_not_is_null(tmp_path: Path) -> None:
    keep(tmp_path / "k.db", record(first_at=0.0, status=0, outcome="client_gone"))
    (row,) = rows(tmp_path / "k.db")
    assert row["ttft_s"] is None and row["status"] is None


class Unsaid(sqlite3.Connection):
    """Commits, and says that it could not."""

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        done = super().execute(sql, *parameters)
        if sql == "COMMIT":
            raise sqlite3.OperationalError("disk I/O error")
        return done


@pytest.mark.parametrize("unique", ["", ", UNIQUE (request_id)"])
def test_a_batch_whose_commit_is_in_doubt_counts_once(tmp_path: Path, unique: str) -> None:
    """Files of earlier versions have an index of ids; nothing else is different there."""
    path = tmp_path / "k.db"
    with closing(sqlite3.connect(path)) as store:
        store.execute(usage_sqlite._TABLES[0].removesuffix(")") + unique + ")")
    ledger, other = SqliteLedger(path), SqliteLedger(path)
    ledger.write(ledger.prepare([record(1)], START))
    batch = ledger.prepare([record(2), record(3)], START)
    assert ledger._store is not None
    ledger._store.close()
    ledger._store = sqlite3.connect(path, isolation_level=None, factory=Unsaid)
    with pytest.raises(sqlite3.OperationalError):
        ledger.write(batch)
    other.write(other.prepare([record(4)], START))
    ledger.write(batch)
    ledger.write(ledger.prepare([record(5)], START))
    (line,) = read(path, Question(()))
    assert (line.requests, line.prompt_tokens, line.ttft_count) == (5, 500, 5)
    assert [row["request_id"][-1] for row in rows(path)] == ["1", "2", "3", "4", "5"]
    ledger.close()
    other.close()


def test_a_large_batch_goes_in_whole(tmp_path: Path) -> None:
    """Rows go in by many at a time, and the last ones by one."""
    ledger = SqliteLedger(tmp_path / "k.db")
    ledger.write(ledger.prepare([record(number) for number in range(123)], START))
    assert [row["request_id"] for row in rows(tmp_path / "k.db")] == [f"kc-0123456789ab-{n:x}" for n in range(123)]
    assert total(read(tmp_path / "k.db", Question(()))).requests == 123
    ledger.close()


def test_errors_are_what_the_client_did_not_get(tmp_path: Path) -> None:
    outcomes = ["ok", "client_gone", "client_error", "refused", "timeout", "upstream_error"]
    keep(tmp_path / "k.db", *(record(n, outcome=outcome) for n, outcome in enumerate(outcomes)))
    (line,) = read(tmp_path / "k.db", Question(()))
    assert (line.requests, line.errors) == (6, 4)


def test_two_gateways_write_to_one_file(tmp_path: Path) -> None:
    one, other = SqliteLedger(tmp_path / "k.db"), SqliteLedger(tmp_path / "k.db")
    for number in range(10):
        ledger = one if number % 2 else other
        ledger.write(ledger.prepare([record(number)], START))
        assert total(read(tmp_path / "k.db", Question(("tenant",)))).requests == number + 1  # read while they write
    one.close()
    other.close()


@pytest.mark.parametrize("attempt", range(5))
def test_workers_that_start_together_make_the_file_together(tmp_path: Path, attempt: int) -> None:
    """SQLite tells some of them at once that the file is locked: one start of two workers in a hundred failed."""
    together = threading.Barrier(8)

    def start(number: int) -> int:
        together.wait(10)
        ledger = SqliteLedger(tmp_path / "k.db")
        ledger.write(ledger.prepare([record(number)], START))
        ledger.close()
        return 1

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(start, range(8))) == 8
    assert total(read(tmp_path / "k.db", Question(()))).requests == 8


def test_a_failed_write_leaves_nothing_and_the_next_one_opens_the_file_anew(tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path / "k.db")
    good = ledger.prepare([record(1)], START)
    with pytest.raises(sqlite3.Error):
        ledger.write([*good, good[0][:-1]])
    assert not rows(tmp_path / "k.db")
    ledger.write(good)
    assert len(rows(tmp_path / "k.db")) == 1
    ledger.close()


def test_old_rows_go_and_their_days_stay(tmp_path: Path) -> None:
    keep(tmp_path / "k.db", record(1), record(2, ended=3 * DAY))
    ledger = SqliteLedger(tmp_path / "k.db", keep=DAY)
    ledger.tidy(START + 3 * DAY + 5)
    ledger.close()
    assert [row["request_id"] for row in rows(tmp_path / "k.db")] == ["kc-0123456789ab-2"]
    lines = read(tmp_path / "k.db", Question(("day",)))
    assert [line.group for line in lines] == [("2026-11-28",), ("2026-12-01",)]


def test_the_file_is_its_owners_alone(tmp_path: Path) -> None:
    keep(tmp_path / "k.db", record())
    assert (tmp_path / "k.db").stat().st_mode & 0o077 == 0


def test_reading_says_what_is_wrong_and_makes_no_file(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no store"):
        read(tmp_path / "none.db", Question(()))
    assert not (tmp_path / "none.db").exists()
    (tmp_path / "text.db").write_text("no database, but long enough to look at " * 10)
    with pytest.raises(StoreError, match="not a database"):
        read(tmp_path / "text.db", Question(()))
    sqlite3.connect(tmp_path / "other.db").close()
    assert read(tmp_path / "other.db", Question(())) == []  # a store that has only keys, say
    with pytest.raises(UsageError, match="by 'colour'"):
        read(tmp_path / "other.db", Question(("colour",)))


names = st.sampled_from(["a", "b", "=1+1", 'quote"', "it's", "ü 读"])
#: eighths of a second: exact as Unix times too, where a float of 1e-300 would round away
moments = st.integers(0, 4 * 8 * int(DAY)).map(lambda eighths: eighths / 8)
used = st.one_of(
    st.just(NOTHING), st.builds(Tokens, st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 99), st.booleans())
)
requests = st.builds(
    lambda ended, tenant, model, pool, outcome, tokens, ttft: record(
        1, started=ended, ended=ended, tenant=tenant, model=model, pool=pool, outcome=outcome, tokens=tokens,
        first_at=ended + ttft if ttft else 0.0,
    ),
    moments, names, names, names, st.sampled_from(["ok", "client_gone", "timeout"]), used,
    st.sampled_from([0, 0.5, 2.25]),
)  # fmt: skip


@pytest.mark.timeout(20)  # each example writes a file
@settings(max_examples=25)
@given(
    batches=st.lists(st.lists(requests, max_size=6), max_size=4),
    by=st.lists(st.sampled_from(DIMENSIONS), unique=True),
    since=st.one_of(st.none(), moments),
    until=st.one_of(st.none(), moments),
    tenant=st.one_of(st.none(), names),
    model=st.one_of(st.none(), names),
)
def test_any_report_is_the_sum_of_its_requests(
    batches: list[list[Record]], by: list[str], since: float | None, until: float | None, tenant: str | None,
    model: str | None,
) -> None:  # fmt: skip
    """Whichever hours are asked for: as if one had gone through all requests by hand."""
    chosen = [
        one
        for batch in batches
        for one in batch
        if (since is None or one.ended >= since)
        and (until is None or one.ended < until)
        and (tenant is None or one.tenant == tenant)
        and (model is None or one.model == model)
    ]
    expected: dict[tuple[str, ...], list[Record]] = {} if by else {(): []}
    for one in chosen:
        values = {
            "day": f"2026-{['11-28', '11-29', '11-30', '12-01', '12-02'][int(one.ended // DAY)]}",
            "tenant": one.tenant,
            "model": one.model,
            "pool": one.pool,
        }
        expected.setdefault(tuple(values[name] for name in by), []).append(one)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "k.db"
        for batch in batches or [[]]:
            keep(path, *batch)
        shift = [None if moment is None else moment + START for moment in (since, until)]
        lines = read(path, Question(tuple(by), *shift, tenant, model))
    assert [line.group for line in lines] == sorted(expected)
    for line in lines:
        assert line[1:] == pytest.approx(by_hand(expected[line.group])[1:])


def by_hand(chosen: list[Record]) -> Line:
    return Line(
        (),
        len(chosen),
        sum(one.outcome == "timeout" for one in chosen),
        sum(one.tokens.estimated for one in chosen),
        sum(one.tokens.prompt for one in chosen),
        sum(one.tokens.cached for one in chosen),
        sum(one.tokens.output for one in chosen),
        sum(one.first_at - one.started for one in chosen if one.first_at),
        sum(one.first_at > 0 for one in chosen),
    )


def test_the_contract_of_the_table() -> None:
    """Other programs read it. A column may be added at the end; a name here that changes breaks them."""
    assert [column.name for column in COLUMNS] == [
        "request_id",
        "started",
        "ended",
        "tenant",
        "model",
        "pool",
        "replica",
        "path",
        "streamed",
        "prompt_tokens",
        "cached_tokens",
        "output_tokens",
        "estimated",
        "held_s",
        "ttft_s",
        "duration_s",
        "attempts",
        "outcome",
        "status",
        "error_code",
    ]


@pytest.mark.parametrize("replaced", [False, True], ids=["removed", "replaced"])
def test_a_file_that_was_removed_or_replaced_gets_no_more_rows(
    tmp_path: Path, replaced: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """SQLite would write on into the old one, whose name nobody can read it by."""
    path, backup = tmp_path / "k.db", tmp_path / "backup.db"
    keep(backup, record(7))
    ledger = SqliteLedger(path)
    ledger.write(ledger.prepare([record(1)], START))
    for old in tmp_path.glob("k.db*"):
        old.unlink()
    if replaced:
        backup.rename(path)
    for number in (2, 3):
        ledger.write(ledger.prepare([record(number)], START))
    ledger.close()
    kept = ["7"] * replaced + ["2", "3"]
    assert [row["request_id"].rpartition("-")[2] for row in rows(path)] == kept
    assert total(read(path, Question(()))).requests == len(kept), "the day agrees"
    assert [line.message for line in caplog.records] == [
        f"{path} was removed or replaced: the ledger goes on in the file that has its name now"
    ]
