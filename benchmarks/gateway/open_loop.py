"""Requests at a given rate, whatever the answers do; latency counts from the moment that a request was meant to leave.

Poisson arrivals, equal for equal seeds. A connection is taken from those that are idle, or opened. A closed loop would
send less while the proxy is slow and so leave out the very waits that matter (coordinated omission).
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import random
import time
from functools import partial
from typing import Any

import uvloop

from benchmarks.gateway.closed_loop import post
from benchmarks.gateway.cpu import cpu_seconds
from benchmarks.gateway.pages import request_body

#: more than this at once, and the proxy is hopelessly behind: the run ends
MOST = 4000


class _Connection(asyncio.Protocol):
    def __init__(self, run: _Run) -> None:
        self.run = run
        self.buffer = b""
        self.meant = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # TCP only
        self.transport = transport

    def ask(self, meant: float) -> None:
        self.meant = meant
        self.transport.write(self.run.request)

    def data_received(self, data: bytes) -> None:
        data = self.buffer + data
        head = data.find(b"\r\n\r\n")
        at = data[: max(head, 0)].lower().find(b"content-length:")
        whole = head >= 0 and (
            len(data) >= head + 4 + int(data[at + 15 : data.index(b"\r\n", at)])
            if at >= 0
            else data.endswith(b"0\r\n\r\n")
        )
        if not whole:
            self.buffer = data
            return
        self.buffer = b""
        self.run.answered(self, data.startswith(b"HTTP/1.1 200"))

    def connection_lost(self, exc: Exception | None) -> None:
        self.run.lost(self)


class _Run:
    def __init__(self, port: int, request: bytes) -> None:
        self.port = port
        self.request = request
        self.idle: list[_Connection] = []
        self.all: set[_Connection] = set()
        self.times: list[float] = []
        self.lags: list[float] = []
        self.errors = self.bad_status = self.out = 0
        self.over = False

    def answered(self, connection: _Connection, ok: bool) -> None:
        self.times.append(time.perf_counter() - connection.meant)
        self.out -= 1
        self.bad_status += not ok
        connection.meant = 0.0
        self.idle.append(connection)

    def lost(self, connection: _Connection) -> None:
        self.all.discard(connection)
        if connection in self.idle:
            self.idle.remove(connection)
        if connection.meant and not self.over:
            self.errors += 1
            self.out -= 1

    async def open(self) -> _Connection:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(partial(_Connection, self), "127.0.0.1", self.port)
        self.all.add(connection)
        return connection

    async def open_and_ask(self, meant: float) -> None:
        try:
            connection = await self.open()
        except OSError:
            self.errors += 1
            self.out -= 1
            return
        connection.ask(meant)


async def open_loop(
    port: int, rate: float, seconds: float, connections: int, authorization: str, proxy: int, seed: int
) -> dict[str, Any]:
    run = _Run(port, post("/v1/chat/completions", authorization, request_body(stream=False, tokens=40)))
    run.idle = [await run.open() for _ in range(connections)]
    rng = random.Random(seed)
    gc.collect()
    gc.freeze()
    cpu, started = (cpu_seconds(proxy) if proxy else 0.0), time.perf_counter()
    meant, sent, gave_up = started, 0, False
    while meant < started + seconds:
        meant += rng.expovariate(rate)
        pause = meant - time.perf_counter()
        # uvloop's timers count in milliseconds: the last one is spent in short turns, so that a request leaves in time
        if pause > 0.0015:
            await asyncio.sleep(pause - 0.0015)
        while time.perf_counter() < meant:
            os.sched_yield()  # the stub may be on this core too
            await asyncio.sleep(0)
        run.lags.append(time.perf_counter() - meant)
        run.out += 1
        sent += 1
        if run.idle:
            run.idle.pop().ask(meant)
        else:
            asyncio.get_running_loop().create_task(run.open_and_ask(meant))
        if run.out > MOST:
            gave_up = True
            break
    took = time.perf_counter() - started
    end = time.perf_counter() + 10
    while run.out and not gave_up and time.perf_counter() < end:  # noqa: ASYNC110  # it is the answers' own time
        await asyncio.sleep(0.01)
    cpu = (cpu_seconds(proxy) if proxy else 0.0) - cpu
    run.over = True
    for connection in list(run.all):
        connection.transport.abort()
    ranked, lags = sorted(run.times) or [float("nan")], sorted(run.lags)
    return {
        "requests": sent,
        "seconds": took,
        "cpu_s": cpu,
        "p50_ms": ranked[len(ranked) // 2] * 1e3,
        "p99_ms": ranked[len(ranked) * 99 // 100] * 1e3,
        "mean_ms": sum(ranked) / len(ranked) * 1e3,
        "lag_p99_ms": lags[len(lags) * 99 // 100] * 1e3,
        "errors": run.errors,
        "bad_status": run.bad_status,
        "unfinished": run.out,
        "gave_up": gave_up,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("--rate", type=float, default=1000)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--authorization", default="Bearer none")
    parser.add_argument("--proxy", type=int, default=0, help="pid of the proxy; 0: none")
    parser.add_argument("--seed", type=int, default=1)
    a = parser.parse_args()
    result = uvloop.run(open_loop(a.port, a.rate, a.seconds, a.connections, a.authorization, a.proxy, a.seed))
    print("JSON " + json.dumps(result))


if __name__ == "__main__":
    main()
