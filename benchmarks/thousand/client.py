"""Short streaming requests at a given rate, whatever the answers do, over keep-alive connections to one or many ports.

Poisson arrivals, equal for equal seeds; with many ports each request goes to the next one in turn. Times count from the
moment that the request was written; how late that was is told apart (`lag`). It does not spin for its timers: they are
exact to a millisecond, and the processor is needed by those who are measured. It says BEGIN and END around the measured
window, so that whoever reads others' processor time reads it for the same one.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import random
import resource
import sys
import time
from functools import partial
from typing import Any

import uvloop

#: more requests than this under way, and the other side is hopelessly behind: the run ends
MOST = 5000
#: seconds that what runs at the end of the window has to end
PATIENCE = 10.0
OK = b"HTTP/1.1 200"
#: the end of a chunked body
END = b"\r\n0\r\n\r\n"


class Connection(asyncio.Protocol):
    """One request at a time."""

    def __init__(self, run: Run, port: int) -> None:
        self.run = run
        self.port = port
        self.asked_at = 0.0
        self.first_at = 0.0
        self.text = b""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # TCP only
        self.transport = transport

    def ask(self) -> None:
        self.first_at = 0.0
        self.text = b""
        self.asked_at = time.perf_counter()
        self.transport.write(self.run.request)

    def data_received(self, data: bytes) -> None:
        self.text = text = self.text + data
        if not self.first_at and _pieces(data):
            self.first_at = time.perf_counter()
        if not text.startswith(OK[: len(text)]):
            self.run.refused(self)
        elif data.endswith(END) or (len(data) < len(END) and text.endswith(END)):
            self.run.answered(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.run.lost(self)


def _pieces(text: bytes) -> int:
    """Tokens in it: the role's chunk, and the last one where the model ended by itself, have an empty content."""
    return text.count(b'"content":"') - text.count(b'"content":""')


class Run:
    def __init__(self, ports: list[int], tokens: int, model: str, prompt: int) -> None:
        self.ports = ports
        self.tokens = tokens
        body = json.dumps(
            {
                "model": model,
                "messages": [{"role": "user", "content": "word " * max(1, prompt - 8)}],
                "max_tokens": tokens,
                "ignore_eos": True,
                "stream": True,
            }
        ).encode()
        head = "POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n"
        self.request = head.encode() + b"content-length: %d\r\n\r\n" % len(body) + body
        self.idle: dict[int, list[Connection]] = {port: [] for port in ports}
        self.all: set[Connection] = set()
        self.ttft: list[float] = []
        self.e2e: list[float] = []
        self.lags: list[float] = []
        self.counts = {"requests": 0, "ok": 0, "bad_status": 0, "incomplete": 0, "cut": 0, "unfinished": 0}
        self.out = 0
        self.over = False

    def begin(self) -> None:
        """The measured window begins: what was counted until now is forgotten."""
        self.ttft.clear()
        self.e2e.clear()
        self.lags.clear()
        self.counts = dict.fromkeys(self.counts, 0)

    def answered(self, connection: Connection) -> None:
        now = time.perf_counter()
        self.out -= 1
        text = connection.text
        if b"[DONE]" not in text or _pieces(text) != self.tokens:
            self.counts["incomplete"] += 1
        else:
            self.counts["ok"] += 1
            self.ttft.append(connection.first_at - connection.asked_at)
            self.e2e.append(now - connection.asked_at)
        connection.asked_at = 0.0
        self.idle[connection.port].append(connection)

    def refused(self, connection: Connection) -> None:
        self.counts["bad_status"] += 1
        self.out -= 1
        connection.asked_at = 0.0
        connection.transport.abort()

    def lost(self, connection: Connection) -> None:
        self.all.discard(connection)
        if connection.asked_at and not self.over:
            self.counts["cut"] += 1
            self.out -= 1
        elif connection in self.idle[connection.port]:
            self.idle[connection.port].remove(connection)

    def ask(self, port: int) -> None:
        self.counts["requests"] += 1
        self.out += 1
        while self.idle[port]:
            connection = self.idle[port].pop()
            if not connection.transport.is_closing():
                connection.ask()
                return
        asyncio.get_running_loop().create_task(self._open_and_ask(port))  # `out` counts it

    async def _open_and_ask(self, port: int) -> None:
        try:
            _, connection = await asyncio.get_running_loop().create_connection(
                partial(Connection, self, port), "127.0.0.1", port
            )
        except OSError:
            self.counts["cut"] += 1
            self.out -= 1
            return
        self.all.add(connection)
        connection.ask()

    async def offer(self, rate: float, seconds: float, rng: random.Random) -> float:
        """Send for so long; returns how long it was."""
        started = time.perf_counter()
        meant, turn = started, 0
        while meant < started + seconds and self.out < MOST:
            meant += rng.expovariate(rate)
            pause = meant - time.perf_counter()
            if pause > 0.0005:
                await asyncio.sleep(pause)
            self.lags.append(time.perf_counter() - meant)
            self.ask(self.ports[turn % len(self.ports)])
            turn += 1
        return time.perf_counter() - started

    async def end(self) -> None:
        end = time.perf_counter() + PATIENCE
        while self.out and time.perf_counter() < end:  # noqa: ASYNC110  # it is the answers' own time
            await asyncio.sleep(0.01)
        self.counts["unfinished"] = self.out
        self.over = True
        for connection in list(self.all):
            connection.transport.abort()


async def load(o: argparse.Namespace) -> dict[str, Any]:
    run = Run([int(port) for port in o.ports.split(",")], o.tokens, o.model, o.prompt)
    rng = random.Random(o.seed)
    await run.offer(o.rate, o.warm, rng)
    gave_up = run.out >= MOST
    gc.collect()
    gc.freeze()
    run.begin()
    under_way = run.out
    print("BEGIN", flush=True)
    began = time.process_time()
    took = 0.0 if gave_up else await run.offer(o.rate, o.seconds, rng)
    cpu = time.process_time() - began
    print("END", flush=True)
    gave_up = gave_up or run.out >= MOST
    await run.end()
    return {
        **run.counts,
        "seconds": took,
        "requests_per_s": run.counts["requests"] / took if took else 0.0,
        "under_way_at_begin": under_way,
        "gave_up": gave_up,
        "cpu_s": cpu,
        "lag_s": spread(run.lags),
        "ttft_s": spread(run.ttft),
        "e2e_s": spread(run.e2e),
        "rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def spread(values: list[float]) -> dict[str, float] | None:
    if not values:
        return None
    ranked = sorted(values)
    shares = {name: ranked[min(len(ranked) - 1, int(len(ranked) * share))] for name, share in SHARES.items()}
    return {"mean": sum(ranked) / len(ranked), **shares, "max": ranked[-1]}


SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("ports", help="comma-separated")
    parser.add_argument("--rate", type=float, default=1000)
    parser.add_argument("--warm", type=float, default=3)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--prompt", type=int, default=64)
    parser.add_argument("--model", default="emulated")
    parser.add_argument("--seed", type=int, default=1)
    print("JSON " + json.dumps(uvloop.run(load(parser.parse_args()))))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
