"""A load client on httpx: a task for each stream, JSON of each event."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from typing import Any

import httpx

from benchmarks.bench_client.load import Load, Seen, main


async def stream(client: httpx.AsyncClient, load: Load, number: int) -> Seen:
    intended, stamps = time.monotonic_ns(), []
    headers = {"Content-Type": "application/json"}
    url = f"{load.url}/v1/chat/completions"
    async with client.stream("POST", url, content=load.body(number), headers=headers) as response:
        rest = b""
        async for piece in response.aiter_bytes():
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
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(limits=limits, timeout=None, trust_env=False) as client:

        async def slot(index: int) -> list[Seen]:
            await asyncio.sleep(load.ramp_s * index / load.streams)
            return [await stream(client, load, number) for number in numbers]

        return list(itertools.chain(*await asyncio.gather(*(slot(index) for index in range(load.streams)))))


def measure(load: Load) -> tuple[list[Seen], dict[str, Any]]:
    return asyncio.run(drive(load)), {}


if __name__ == "__main__":
    main(measure)
