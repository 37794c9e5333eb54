"""Budgets in a real SQLite file: restarts, two processes, a crash, a file that can't be used."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kilocard.core.errors import StoreError
from kilocard.spec.model import TenantLimits, TenantSpec
from kilocard.stores.budget_keeper import BudgetKeeper
from kilocard.stores.budgets import SqliteBudgets
from kilocard.tenancy.book import Book
from kilocard.tenancy.budget import BudgetKey
from kilocard.tenancy.limits import Ask, Denied, Grant, Scope

NOON = 1_795_953_600.0  # 2026-11-29 12:00 UTC
SCOPE = Scope("acme", "", TenantLimits(tokens_per_day=1000, tokens_per_month=5000))
DAY, MONTH = BudgetKey("acme", "", "2026-11-29"), BudgetKey("acme", "", "2026-11")


def use(book: Book, tokens: int, wall: float = NOON) -> None:
    grant = book.decide(Ask((SCOPE,), tokens, 0, True, wall, 60.0), 100.0)
    assert isinstance(grant, Grant), grant
    book.settle(grant, tokens, 100.0)


@contextlib.asynccontextmanager
async def kept(
    path: Path, errors: list[int] | None = None, wall: float = NOON
) -> AsyncIterator[tuple[Book, BudgetKeeper]]:
    book = Book()
    counted = [] if errors is None else errors
    keeper = BudgetKeeper(book, SqliteBudgets(path), lambda: counted.append(1), wall=lambda: wall)
    await keeper.start()
    try:
        yield book, keeper
    finally:
        await keeper.close()


def test_a_budget_lives_through_a_restart(tmp_path: Path) -> None:
    async def story() -> None:
        async with kept(tmp_path / "s.db") as (book, _):
            use(book, 600)
        async with kept(tmp_path / "s.db") as (book, _):
            assert book.used(SCOPE, 100.0, NOON)[3:] == (600, 600)
            use(book, 300)
            no = book.decide(Ask((SCOPE,), 200, 0, True, NOON, 60.0), 100.0)
            assert isinstance(no, Denied) and no.code == "tokens_per_day"

    asyncio.run(story())


def test_two_processes_add_up_in_one_file(tmp_path: Path) -> None:
    async def story() -> None:
        async with kept(tmp_path / "s.db") as (one, saves_one), kept(tmp_path / "s.db") as (other, saves_other):
            use(one, 100)
            await saves_one.save()
            use(other, 50)
            await saves_other.save()
            assert other.used(SCOPE, 100.0, NOON).day == 150  # each write brings the others' use back
            use(one, 1)
            await saves_one.save()
            assert one.used(SCOPE, 100.0, NOON).day == 151

    asyncio.run(story())


def test_periods_that_are_over_are_removed(tmp_path: Path) -> None:
    store = SqliteBudgets(tmp_path / "s.db")
    old = BudgetKey("acme", "", "2026-10-31"), BudgetKey("acme", "", "2026-09")
    store.add({old[0]: 5, old[1]: 5, DAY: 1, MONTH: 2})
    assert store.load(NOON) == {DAY: 1, MONTH: 2}
    store.close()
    with contextlib.closing(sqlite3.connect(tmp_path / "s.db")) as raw:
        assert raw.execute("SELECT count(*) FROM budgets").fetchone() == (2,)


def test_a_store_that_fails_stops_nothing_and_nothing_is_lost_when_it_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "s.db"
    path.mkdir()  # no file can be opened there

    async def story() -> None:
        errors: list[int] = []
        with caplog.at_level(logging.INFO, "kilocard.budgets"):
            async with kept(path, errors) as (book, keeper):
                use(book, 10)
                await keeper.save()
                await keeper.save()
                assert len(errors) == 3  # the reading at the start too
                assert [record.levelname for record in caplog.records] == ["WARNING"]
                assert book.used(SCOPE, 100.0, NOON).day == 10
                path.rmdir()
                SqliteBudgets(path).add({DAY: 400})  # meanwhile somebody else used some
                await keeper.save()
                assert book.used(SCOPE, 100.0, NOON).day == 410
                assert caplog.records[-1].levelname == "INFO"
        assert SqliteBudgets(path).load(NOON)[DAY] == 410

    asyncio.run(story())


def remove(store: Path) -> None:
    for file in store.parent.glob(f"{store.name}*"):
        file.unlink()


def test_a_file_that_was_removed_or_comes_from_a_backup_gives_nothing_back(tmp_path: Path) -> None:
    """What was used stays used, in memory and in the file that has the name now."""

    async def story() -> None:
        path, backup = tmp_path / "s.db", tmp_path / "backup.db"
        async with kept(backup) as (book, _):
            use(book, 100)
        async with kept(path) as (book, keeper):
            use(book, 600)
            await keeper.save()
            remove(path)
            use(book, 50)
            await keeper.save()
            assert book.used(SCOPE, 100.0, NOON)[3:] == (650, 650)
            os.replace(backup, path)
            use(book, 30)
            await keeper.save()
            assert book.used(SCOPE, 100.0, NOON)[3:] == (680, 680)
        async with kept(path) as (book, _):
            assert book.used(SCOPE, 100.0, NOON)[3:] == (680, 680)

    asyncio.run(story())


def test_what_is_no_store_is_said(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    path.write_bytes(b"this is no database, whatever its name says" * 100)
    with pytest.raises(StoreError, match=r"gateway\.store"):
        SqliteBudgets(path).load(NOON)


PROGRAM = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_budgets import NOON, SCOPE, kept, use

async def main():
    async with kept(Path(sys.argv[1])) as (book, keeper):
        while True:
            use(book, 1)
            print(book.used(SCOPE, 100.0, NOON).day, flush=True)
            await asyncio.sleep(0.005)

asyncio.run(main())
"""


def test_a_killed_process_loses_what_it_settled_since_its_last_write_and_no_more(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    command = [sys.executable, "-c", PROGRAM, str(path), str(Path(__file__).parent)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        seen = [(time.monotonic(), int(process.stdout.readline()))]
        while time.monotonic() - seen[0][0] < 4.0:
            seen.append((time.monotonic(), int(process.stdout.readline())))
        os.kill(process.pid, signal.SIGKILL)
        killed = time.monotonic()
    saved = SqliteBudgets(path).load(NOON)[DAY]
    # One second between writes, and more than another for a busy machine to write.
    due = max(count for at, count in seen if at < killed - 2.5)
    assert due <= saved <= seen[-1][1] + 5


def test_a_fault_that_nobody_foresaw_forgets_nothing_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "s.db"

    def fault(*_: object) -> dict[BudgetKey, int]:
        raise TypeError("of no store's making")

    async def story() -> None:
        errors: list[int] = []
        async with kept(path, errors) as (book, keeper):
            use(book, 10)
            with monkeypatch.context() as broken:
                broken.setattr(SqliteBudgets, "add", fault)
                await keeper.save()
            assert len(errors) == 1 and "TypeError, a fault" in caplog.text
            await keeper.save()
            assert len(errors) == 1
        assert SqliteBudgets(path).load(NOON)[DAY] == 10

    asyncio.run(story())


def test_a_budget_that_comes_with_another_cluster_file_is_known_before_it_is_used(tmp_path: Path) -> None:
    """Its tenant had one before, or has one at another gateway."""
    path = tmp_path / "s.db"
    SqliteBudgets(path).add({DAY: 950})

    async def story() -> None:
        book = Book()
        keeper = BudgetKeeper(book, SqliteBudgets(path), lambda: None, read_at_start=False, wall=lambda: NOON)
        await keeper.start()
        assert book.used(SCOPE, 100.0, NOON).day == 0
        keeper.declare([TenantSpec("acme", limits=SCOPE.limits)])
        while book.used(SCOPE, 100.0, NOON).day != 950:
            await asyncio.sleep(0.005)
        await keeper.close()

    asyncio.run(asyncio.wait_for(story(), 20))


def test_no_store_is_made_for_tenants_without_budgets(tmp_path: Path) -> None:
    async def story() -> None:
        keeper = BudgetKeeper(Book(), SqliteBudgets(tmp_path / "s.db"), lambda: None, read_at_start=False)
        await keeper.start()
        keeper.declare([TenantSpec("acme")])
        await keeper.close()

    asyncio.run(story())
    assert not list(tmp_path.iterdir())
