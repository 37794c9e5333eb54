"""Closed loop of non-streaming requests: wrk where it is installed, else our own client.

Ours is nearly as fast, since it looks at no more than length and status. Compare numbers of one kind of client only.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import uvloop

from benchmarks.gateway.children import ChildError
from benchmarks.gateway.pages import request_body

LUA = Path(__file__).with_name("load.lua")


def post(path: str, authorization: str, body: bytes) -> bytes:
    return (
        b"POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nAuthorization: %s\r\n"
        b"Content-Length: %d\r\n\r\n%s" % (path.encode(), authorization.encode(), len(body), body)
    )


def have_wrk() -> bool:
    return shutil.which("wrk") is not None


def wrk_argv(port: int, connections: int, seconds: float, body_file: Path, authorization: str) -> list[str]:
    url = f"http://127.0.0.1:{port}/v1/chat/completions"
    return [
        *("wrk", "-t1", f"-c{connections}", f"-d{max(1, round(seconds))}s", "--timeout", "10s", "-s", str(LUA), url),
        *("--", str(body_file), authorization),
    ]


def own_argv(python: str, port: int, connections: int, seconds: float, authorization: str) -> list[str]:
    return [
        *(python, "-m", "benchmarks.gateway.closed_loop", str(port)),
        *("--connections", str(connections), "--seconds", str(seconds), "--authorization", authorization),
    ]


def run(argv: list[str], seconds: float) -> dict[str, Any]:
    """Run a client to its end; its JSON line: requests, seconds, p50_ms, p99_ms, errors, bad_status."""
    done = subprocess.run(argv, capture_output=True, text=True, timeout=seconds + 60, check=False)
    for line in done.stdout.splitlines():
        if line.startswith("JSON "):
            return dict(json.loads(line[5:]))
    raise ChildError(f"{argv[0]} gave no summary (exit {done.returncode}):\n{done.stdout[-800:]}{done.stderr[-800:]}")


class _Client(asyncio.Protocol):
    def __init__(self, request: bytes, times: list[float]) -> None:
        self.request, self.times = request, times
        self.errors = self.bad_status = 0
        self.buffer = b""
        self.stopped = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # TCP only
        self.transport = transport
        self.send()

    def send(self) -> None:
        self.started = time.perf_counter()
        self.transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        data = self.buffer + data
        head = data.find(b"\r\n\r\n")
        if head < 0:
            self.buffer = data
            return
        lower = data[:head].lower()
        at = lower.find(b"content-length:")
        if at >= 0:
            if len(data) < head + 4 + int(lower[at + 15 :].split(b"\r\n", 1)[0]):
                self.buffer = data
                return
        elif not data.endswith(b"0\r\n\r\n"):
            self.buffer = data
            return
        self.buffer = b""
        self.times.append(time.perf_counter() - self.started)
        if not data.startswith(b"HTTP/1.1 200"):
            self.bad_status += 1
        if not self.stopped:
            self.send()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.stopped:
            self.errors += 1


async def closed_loop(port: int, connections: int, seconds: float, authorization: str) -> dict[str, Any]:
    loop = asyncio.get_running_loop()
    request = post("/v1/chat/completions", authorization, request_body(stream=False, tokens=40))
    times: list[float] = []
    clients = []
    started = time.perf_counter()
    for _ in range(connections):
        _, client = await loop.create_connection(lambda: _Client(request, times), "127.0.0.1", port)
        clients.append(client)
    await asyncio.sleep(seconds)
    for client in clients:
        client.stopped = True
    took = time.perf_counter() - started
    count = len(times)
    await asyncio.sleep(0.2)
    for client in clients:
        client.transport.close()
    ranked = sorted(times[:count]) or [float("nan")]
    return {
        "requests": count,
        "seconds": took,
        "p50_ms": ranked[len(ranked) // 2] * 1e3,
        "p99_ms": ranked[len(ranked) * 99 // 100] * 1e3,
        "errors": sum(c.errors for c in clients),
        "bad_status": sum(c.bad_status for c in clients),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--authorization", default="Bearer none")
    a = parser.parse_args()
    print("JSON " + json.dumps(uvloop.run(closed_loop(a.port, a.connections, a.seconds, a.authorization))))


if __name__ == "__main__":
    main()
