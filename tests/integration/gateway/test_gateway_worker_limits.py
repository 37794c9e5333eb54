"""Limits across workers are as exact as with one, and a worker that is killed gives back what it held."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import signal
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

from stub_engine import answer, hang, run
from worker_processes import Workers, workers_over

KEY = "key-of-t"
HASH = "sha256:" + hashlib.sha256(KEY.encode()).hexdigest()


def tenant(**limits: int) -> dict[str, Any]:
    return {"t": {"keys": [HASH], "limits": limits}}


async def ask(workers: Workers, count: int) -> Counter[int]:
    """Statuses of so many requests at once, each on its own connection."""
    answers = await asyncio.gather(*[workers.chat(authorization=f"Bearer {KEY}") for _ in range(count)])
    assert all(each.status in (200, 429) for each in answers)
    return Counter(each.status for each in answers)


def test_19_100_a_minute_are_100_of_400_through_4_workers(tmp_path: Path) -> None:
    async def body() -> None:
        async with workers_over(tmp_path, answer, answer, count=4, tenants=tenant(requests_per_minute=100)) as workers:
            assert await ask(workers, 400) == {200: 100, 429: 300}
            rows = await workers.workers()
            assert len(rows) == 4
            (limit,) = (await workers.state())["tenants"][0]["limits"]
            assert limit == {"limit": "requests_per_minute", "model": "", "of": 100, "used": 100}
            page = (await workers.get("/metrics")).body.decode()
            labels = 'tenant="t",model="",limit="requests_per_minute"'
            assert f"kilocard_limit_used{{{labels}}} 100" in page
            assert f"kilocard_limit_remaining{{{labels}}} 0" in page
            assert await workers.metric("kilocard_store_errors_total") == 0

    run(body())


def test_tokens_a_minute(tmp_path: Path) -> None:
    async def body() -> None:
        # the stub's answers use 6 tokens each; what is reserved before is more, so fewer run at once
        async with workers_over(tmp_path, answer, count=3, tenants=tenant(tokens_per_minute=3000)) as workers:
            passed = 0
            while True:
                statuses = await ask(workers, 60)
                passed += statuses[200]
                assert passed * 6 <= 3000
                (limit,) = (await workers.state())["tenants"][0]["limits"]
                assert limit["used"] == passed * 6  # all of it settled, none leaked
                if passed > 120:
                    return

    run(body())


def test_18_concurrency_of_a_killed_worker_comes_back(tmp_path: Path) -> None:
    async def body() -> None:
        async with workers_over(tmp_path, hang, tenants=tenant(concurrency=8)) as workers:
            asking = await workers.on_all(8, authorization=f"Bearer {KEY}")
            assert await ask(workers, 3) == {429: 3}
            victim = (await workers.workers())[0]
            os.kill(victim["pid"], signal.SIGKILL)

            async def given_back() -> bool:
                return (await workers.state())["tenants"][0]["in_flight"] == 8 - victim["in_flight"]

            await workers.until(given_back)
            workers.engines[0].script = answer
            # one after the other: each finds room
            for _ in range(2 * victim["in_flight"]):
                assert await ask(workers, 1) == {200: 1}
            for each in asking:
                each.cancel()
            await asyncio.gather(*asking, return_exceptions=True)

            async def at_rest() -> bool:
                return (await workers.state())["tenants"][0]["in_flight"] == 0

            await workers.until(at_rest)

    run(body())


def test_a_supervisor_that_hangs_stops_nobody(tmp_path: Path) -> None:
    async def body() -> None:
        async with workers_over(tmp_path, answer, tenants=tenant(requests_per_minute=20)) as workers:
            assert await ask(workers, 4) == {200: 4}
            os.kill(workers.process.pid, signal.SIGSTOP)
            try:
                statuses = await asyncio.wait_for(ask(workers, 60), 40)
                # each of the two workers lets pass half of the limit
                assert 10 <= statuses[200] <= 20, statuses
            finally:
                os.kill(workers.process.pid, signal.SIGCONT)
            assert await workers.metric("kilocard_store_errors_total") == 60

    run(body())


def test_workers_write_one_ledger_one_access_log_and_a_decision_log_each(tmp_path: Path) -> None:
    async def body() -> None:
        gateway = {"access_log": str(tmp_path / "access.log"), "record": {"path": str(tmp_path / "decisions")}}
        async with workers_over(tmp_path, answer, count=3, tenants=tenant(), gateway=gateway) as workers:
            for _ in range(4):
                assert await ask(workers, 50) == {200: 50}

    run(body())
    lines = [json.loads(line) for line in (tmp_path / "access.log").read_text().splitlines()]
    assert len({line["request_id"] for line in lines}) == 200
    assert len({line["request_id"].split("-")[1] for line in lines}) == 3
    with contextlib.closing(sqlite3.connect(tmp_path / "kilocard.db")) as store:
        assert store.execute("SELECT count(*) FROM kilocard_usage").fetchone() == (200,)
    assert len(list(tmp_path.glob("decisions.w[012]"))) == 3
