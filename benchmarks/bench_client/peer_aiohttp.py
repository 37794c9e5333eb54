"""A load client as most are written: aiohttp, a task for each stream, each event decoded (cf. `vllm bench serve`)."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from typing import Any

import aiohttp  # type: ignore[import-not-found]  # in an environment of its own

from benchmarks.bench_client.load import Load, Seen, main


async def stream(session: aiohttp.ClientSession, load: Load, number: int) -> Seen:
    intended, stamps = time.monotonic_ns(), []
    headers = {"Content-Type": "application/json"}
    async with session.post(f"{load.url}/v1/chat/completions", data=load.body(number), headers=headers) as response:
        rest = b""
        async for piece in response.content.iter_any():
            stamp = time.monotonic_ns()
            *events, rest = (rest + piece).split(b"\n\n")
            for event in events:
                payload = event.removeprefix(b"data: ")
                if payload == b"[DONE]":
                    continue
                choices = json.loads(payload)["choices"]
                if choices and choices[0]["delta"].get("content"):
                    stamps.append(stamp)
    return str(number), intended, stamps


async def drive(load: Load) -> list[Seen]:
    numbers = iter(range(load.requests))
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(None)) as session:

        async def slot(index: int) -> list[Seen]:
            await asyncio.sleep(load.ramp_s * index / load.streams)
            return [await stream(session, load, number) for number in numbers]

        return list(itertools.chain(*await asyncio.gather(*(slot(index) for index in range(load.streams)))))


def measure(load: Load) -> tuple[list[Seen], dict[str, Any]]:
    return asyncio.run(drive(load)), {}


if __name__ == "__main__":
    main(measure)
