"""Real llama.cpp replicas come and go by the load, under streams that must not notice."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI
from real_cluster import Up, up

from kilocard.backends import models

pytestmark = [pytest.mark.slow, pytest.mark.llamacpp, pytest.mark.timeout(240)]

SPEC: dict[str, Any] = {
    "models": {"smol": {"pools": {"cpu": 1}}},
    "pools": {
        "cpu": {
            "engine": "llamacpp",
            "args": {"parallel": 2, "ctx-size": 4096, "threads": 1},
            "replicas": {"min": 1, "max": 2},
            "scaling": {
                "up": {"above": 1, "for": "1s"}, "down": {"below": 0.5, "for": "2s"}, "cooldown": "0s",
            },
        }
    },
}  # fmt: skip


class Clients:
    """They stream one answer after the other; `pieces` counts those of each answer."""

    def __init__(self, client: AsyncOpenAI) -> None:
        self._client = client
        self._wanted = 0
        self._tasks: list[asyncio.Task[None]] = []
        self.pieces: list[int] = []

    def set(self, count: int) -> None:
        self._wanted = count
        for number in range(len(self._tasks), count):
            self._tasks.append(asyncio.ensure_future(self._stream(number)))

    async def end(self) -> None:
        self._wanted = 0
        await asyncio.gather(*self._tasks)

    async def _stream(self, number: int) -> None:
        while number < self._wanted:
            stream = await self._client.chat.completions.create(
                model="smol", stream=True, max_tokens=40, temperature=1.0,
                messages=[{"role": "user", "content": f"Tell me story number {number}, a long one."}],
            )  # fmt: skip
            pieces, reason = 0, None
            async for chunk in stream:
                for choice in chunk.choices:
                    pieces += choice.delta.content is not None
                    reason = choice.finish_reason or reason
            assert reason in ("length", "stop")
            self.pieces.append(pieces)


def events(cluster: Up) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(cluster.admin("/scaling"))["events"]
    return found


async def seen(cluster: Up, kind: str, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not any(event["kind"] == kind for event in await asyncio.to_thread(events, cluster)):
        assert time.monotonic() < end, cluster.said()
        await asyncio.sleep(0.2)


def test_a_second_replica_comes_serves_and_goes(tmp_path: Path) -> None:
    models.fetch()

    async def body(cluster: Up) -> list[int]:
        async with cluster.async_client() as client:
            clients = Clients(client)
            clients.set(10)
            await seen(cluster, "ready", 90)
            end = time.monotonic() + 10
            while not all(row["in_flight"] for row in await asyncio.to_thread(cluster.ready)):
                assert time.monotonic() < end, "the new one gets nothing"
                await asyncio.sleep(0.1)
            clients.set(1)
            await seen(cluster, "gone", 90)
            assert len(await asyncio.to_thread(cluster.ready)) == 1
            await clients.end()
        return clients.pieces

    with up(SPEC, tmp_path) as cluster:
        cluster.wait_ready(1)
        pieces = asyncio.run(body(cluster))
        scaling = json.loads(cluster.admin("/scaling"))
    assert len(pieces) > 10 and min(pieces) > 0
    assert not scaling["controller"]["errors"]
    assert not cluster.left_over()
