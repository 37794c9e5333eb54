"""Two gateways with two workers each share limits through one Redis: real processes, a real store."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from stub_engine import Script, answer, hang, run
from worker_processes import Workers, workers_over

from redis_server import RedisServer

KEY = "key-of-t"
HASH = "sha256:" + hashlib.sha256(KEY.encode()).hexdigest()


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path)
    server.start()
    yield server
    server.crash()


@contextlib.asynccontextmanager
async def two(tmp_path: Path, redis: RedisServer, script: Script, **limits: int) -> AsyncIterator[list[Workers]]:
    async with contextlib.AsyncExitStack() as stack:
        both = []
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
            both.append(
                await stack.enter_async_context(
                    workers_over(
                        tmp_path / name,
                        script,
                        gateway={"limit_store": redis.url},
                        tenants={"t": {"keys": [HASH], "limits": limits}},
                    )
                )
            )
        for one in both:
            await one.until(lambda one=one: sees(one, "shared", 2))  # type: ignore[misc]
        yield both


async def store(one: Workers) -> dict[str, Any]:
    found: dict[str, Any] = (await one.state())["gateway"]["limit_store"]
    return found


async def sees(one: Workers, state: str, gateways: int) -> bool:
    found = await store(one)
    return found["state"] == state and found["gateways"] == gateways


async def shows(one: Workers, used: int) -> bool:
    return bool((await one.state())["tenants"][0]["limits"][0]["used"] == used)


async def ask(both: list[Workers], count: int) -> Counter[int]:
    """Statuses of so many requests at once, half through each gateway."""
    asked = [both[number % 2].chat(authorization=f"Bearer {KEY}") for number in range(count)]
    return Counter(each.status for each in await asyncio.gather(*asked))


def test_a_limit_holds_across_gateways_and_through_the_loss_of_the_store(tmp_path: Path, redis: RedisServer) -> None:
    async def body() -> None:
        async with two(tmp_path, redis, answer, requests_per_minute=100) as both:
            assert await ask(both, 40) == {200: 40}
            for one in both:
                await one.until(lambda one=one: shows(one, 40))  # type: ignore[misc]
            redis.crash()
            statuses = await ask(both, 40)
            assert statuses[200] + statuses[429] == 40  # nobody was told of a fault of ours
            for one in both:
                await one.until(lambda one=one: sees(one, "away", 2))  # type: ignore[misc]
                assert await one.metric("kilocard_limit_store_up") == 0
                assert await one.metric("kilocard_limits_decided_alone_total") > 0
                assert await one.metric("kilocard_store_errors_total") > 0
            passed = 40 + statuses[200]
            passed += (await ask(both, 200))[200]
            assert 60 < passed <= 100
            redis.start()
            for one in both:
                await one.until(lambda one=one: sees(one, "shared", 2))  # type: ignore[misc]
                assert await one.metric("kilocard_limit_store_up") == 1
                assert await one.metric("kilocard_limit_gateways") == 2
            assert passed + (await ask(both, 200))[200] == 100
            said = both[0].said.count("Shared limits")
            # Lost, and used again: not a line for each request. A store on a busy machine may be lost more than once.
            assert 2 <= said <= 8, both[0].said

    run(body())


def test_18_concurrency_of_a_killed_gateway_comes_back(tmp_path: Path, redis: RedisServer) -> None:
    async def body() -> None:
        async with two(tmp_path, redis, hang, concurrency=8) as both:
            asking = [asyncio.ensure_future(one.chat(authorization=f"Bearer {KEY}")) for one in both for _ in range(4)]

            async def all_there() -> bool:
                return all(sum(one.running) == 4 for one in both)

            await both[0].until(all_there)
            assert await ask(both, 4) == {429: 4}
            killed = [row["pid"] for row in await both[0].workers()]
            for pid in (both[0].process.pid, *killed):
                os.kill(pid, signal.SIGKILL)

            async def given_back() -> bool:
                return bool((await both[1].state())["tenants"][0]["in_flight"] == 4)

            await both[1].until(given_back)
            both[1].engines[0].script = answer

            async def passes() -> bool:
                return (await both[1].chat(authorization=f"Bearer {KEY}")).status == 200

            for _ in range(8):  # until: a busy machine may miss Redis's answer, and then its share is what it has
                await both[1].until(passes)
            for each in asking:
                each.cancel()
            await asyncio.gather(*asking, return_exceptions=True)

    run(body())
