"""The ledger of a real gateway process: killed, stopped, and with its database lost in the middle of the load."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import psycopg
from gateway_process import gateway_process
from stub_engine import StubEngine, answer, run

from postgres_server import postgres

#: seconds between two writes of the ledger in these tests
FLUSH = 0.3
#: for the write of one batch, and for a machine that does something else
SLACK = 3.0


def reported(*words: str) -> int:
    """Requests of all days, as `kilocard usage` says."""
    argv = [sys.executable, "-m", "kilocard", "usage", *words, "--by", "", "--json"]
    done = subprocess.run(argv, capture_output=True, check=True, timeout=90)
    return int(json.loads(done.stdout)["total"]["requests"])


def ids(store: Path) -> list[str]:
    with sqlite3.connect(store) as open_store:
        found = [row[0] for row in open_store.execute("SELECT request_id FROM kilocard_usage")]
    open_store.close()
    return found


async def more_rows(url: str, before: int) -> int:
    """Wait until the database has more than that, and say how many."""

    def rows() -> int:
        with psycopg.connect(url) as connection, contextlib.suppress(psycopg.errors.UndefinedTable):
            found = connection.execute("SELECT count(*) FROM kilocard_usage").fetchone()
            assert found is not None
            return int(found[0])
        return 0

    async with asyncio.timeout(60):
        while (now := await asyncio.to_thread(rows)) <= before:
            await asyncio.sleep(0.05)
    return now


def test_kill_9_loses_no_more_than_is_stated(tmp_path: Path) -> None:
    async def story() -> None:
        async with gateway_process(tmp_path, StubEngine(answer), usage={"flush": "300ms"}) as gateway:
            gateway.busy()
            await gateway.answers(100)
            due = set(gateway.answered)
            await asyncio.sleep(FLUSH + SLACK)
            await gateway.stop(signal.SIGKILL)
            await gateway.rest()
            kept = ids(tmp_path / "kilocard.db")
            assert due <= set(kept)
            assert len(kept) == len(set(kept)) == reported("--store", str(tmp_path / "kilocard.db"))

    run(story())


def test_a_clean_stop_loses_nothing_and_a_new_start_goes_on(tmp_path: Path) -> None:
    async def story() -> None:
        answered: set[str] = set()
        for _ in range(2):
            async with gateway_process(tmp_path, StubEngine(answer), usage={"flush": "60s"}) as gateway:
                gateway.busy()
                await gateway.answers(100)
                await gateway.rest()
                assert await gateway.stop() == 0
                answered |= set(gateway.answered)
        kept = ids(tmp_path / "kilocard.db")
        assert answered <= set(kept)
        assert len(kept) == len(set(kept)) == reported("--cluster", str(tmp_path / "cluster.yaml"))

    run(story())


def test_42_a_database_that_is_killed_and_comes_back_loses_nothing(tmp_path: Path) -> None:
    """litellm#38121, #34929: a database outage stopped the service. Here clients do not notice."""

    async def story() -> None:
        with postgres() as database:
            usage = {"flush": "100ms", "database": database.url}
            async with gateway_process(tmp_path, StubEngine(answer), usage=usage) as gateway:
                gateway.busy()
                await gateway.answers(100)
                before = await more_rows(database.url, 0)
                for _ in range(2):
                    await asyncio.to_thread(database.crash)
                    await gateway.answers(100)  # clients are served without the database
                    database.start()
                    await asyncio.to_thread(database.wait)
                    before = await more_rows(database.url, before)
                await gateway.rest()
                assert await gateway.stop() == 0
                with psycopg.connect(database.url) as connection:
                    kept = [row[0] for row in connection.execute("SELECT request_id FROM kilocard_usage").fetchall()]
                assert set(gateway.answered) <= set(kept)
                assert len(kept) == len(set(kept))
                assert len(kept) == reported("--database", database.url)
                assert len(kept) == reported("--cluster", str(tmp_path / "cluster.yaml"), "--tenant", "team-a")
                assert reported("--database", database.url, "--since", "1h") == len(kept), "the edge of a day"

    run(story())


def test_42_a_gateway_starts_without_its_database(tmp_path: Path) -> None:
    async def story() -> None:
        usage = {"flush": "100ms", "database": "postgresql://kilocard:secret@127.0.0.1:1/nowhere"}
        async with gateway_process(tmp_path, StubEngine(answer), usage=usage) as gateway:
            gateway.busy(1)
            await gateway.answers(1)
            await gateway.complains(b"can't be written to")
            await gateway.rest()
            await gateway.stop(signal.SIGKILL)
            assert gateway.process.stderr is not None
            assert b"secret" not in gateway.said + await gateway.process.stderr.read()

    run(story())
