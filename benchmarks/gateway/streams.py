"""Many concurrent streams, counted as they arrive.

All streams outlive the measured window, so the window holds chunks and nothing else; afterwards each must have given
every chunk it was asked for and `[DONE]`. The proxy's processor time is read here, at the window's two ends.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import time
from functools import partial
from typing import Any

import uvloop

from benchmarks.gateway.closed_loop import post
from benchmarks.gateway.cpu import cpu_seconds
from benchmarks.gateway.pages import request_body

INTERVAL = 0.005
#: every so manieth stream takes the age of its chunks; taking all would make the client the slow part
SAMPLED = 10


class Stream(asyncio.Protocol):
    def __init__(self, request: bytes, ages: list[int] | None) -> None:
        self.request = request
        self.ages = ages
        self.chunks = self.reads = 0
        self.ok = self.finished = self.saw_done = False
        self.last = b""
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # TCP only
        self.transport = transport
        transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        count = data.count(b"~")
        self.chunks += count
        self.reads += 1
        if self.ages is not None and count:
            at = data.rfind(b"~")
            digits = data[at + 1 : at + 21]
            if len(digits) == 20:
                self.ages.append(time.monotonic_ns() - int(digits))
        if not self.ok:
            self.ok = data.startswith(b"HTTP/1.1 200")
        tail = self.last[-64:] + data if len(data) < 64 else data
        if tail.endswith(b"\n\r\n0\r\n\r\n"):  # behind an event, so that no head with a 0 at its end is taken for it
            self.saw_done = b"[DONE]" in self.last + data
            self.finished = True
            self.end()
        self.last = data

    def connection_lost(self, exc: Exception | None) -> None:
        self.end()

    def end(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)


async def measure(
    port: int, streams: int, warm: float, seconds: float, authorization: str, proxy: int
) -> dict[str, Any]:
    loop = asyncio.get_running_loop()
    tokens = int((warm + seconds + 1.0) / INTERVAL)
    request = post("/v1/chat/completions", authorization, request_body(stream=True, tokens=tokens))
    ages: list[int] = []
    clients: list[Stream] = []
    for i in range(streams):
        _, client = await loop.create_connection(
            partial(Stream, request, ages if i % SAMPLED == 0 else None), "127.0.0.1", port
        )
        clients.append(client)
    await asyncio.sleep(warm)
    gc.collect()
    gc.freeze()

    ages.clear()
    cpu, at = cpu_seconds(proxy) if proxy else 0.0, time.perf_counter()
    chunks, reads = sum(c.chunks for c in clients), sum(c.reads for c in clients)
    await asyncio.sleep(seconds)
    cpu, took = (cpu_seconds(proxy) if proxy else 0.0) - cpu, time.perf_counter() - at
    chunks, reads = sum(c.chunks for c in clients) - chunks, sum(c.reads for c in clients) - reads
    ranked = sorted(ages) or [-1]

    # a slow stub sends late, never less: give the streams several times what they need
    await asyncio.wait([c.ended for c in clients], timeout=4 * (warm + seconds) + 10)
    for c in clients:
        c.transport.abort()
    return {
        "cpu_s": cpu,
        "seconds": took,
        "chunks": chunks,
        "reads_per_chunk": reads / max(1, chunks),
        "p50_ms": ranked[len(ranked) // 2] / 1e6,
        "p99_ms": ranked[len(ranked) * 99 // 100] / 1e6,
        "bad_status": sum(not c.ok for c in clients),
        "unfinished": sum(not (c.finished and c.saw_done) for c in clients),
        "wrong_count": sum(c.chunks != tokens for c in clients),
        "tokens": tokens,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--warm", type=float, default=2)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--authorization", default="Bearer none")
    parser.add_argument("--proxy", type=int, default=0, help="pid of the proxy; 0: none")
    a = parser.parse_args()
    print("JSON " + json.dumps(uvloop.run(measure(a.port, a.streams, a.warm, a.seconds, a.authorization, a.proxy))))


if __name__ == "__main__":
    main()
