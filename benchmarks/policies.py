"""`python -m benchmarks.policies`: does a routing policy shorten the wait for the first token?

Three emulated replicas (`python -m kilocard.emulator`, on the wall clock but `--speed` times as fast as life) stand
behind `kilocard gateway`, once with each policy. The load is open: requests come when they come (Poisson), mostly short
ones and a few long ones (`--long-share`), which is where counting connections and counting queues differ. With a
twentieth or more of long ones the p95 of all is a long one's own prefill, which no policy can shorten; look at the
short ones then. First the replicas are
saturated without a gateway to learn what they can do; then each policy gets the same arrivals at `--load` of that, for
several seeds, in an order that turns. Times are in emulated seconds (wall × speed).

Exit 0: no request failed. 1: some did. Who wins is printed, not asserted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import socket
import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import uvloop

from benchmarks.gateway.children import Child, answers, free_port, two_cores

POLICIES = ("round_robin", "least_connections", "queue_depth")
MODEL = "emulated"
REPLICAS = 3

_CLUSTER = """
gateway: {{listen: "127.0.0.1:{port}", admin: "127.0.0.1:{admin}", scrape_interval: {scrape}ms}}
models:
  {model}: {{policy: {policy}, pools: {{replicas: 100}}}}
pools:
  replicas:
    engine: external
    endpoints: [{endpoints}]
"""

_CONTENT = re.compile(rb'"content":\s?"[^"]')


@dataclass(frozen=True)
class Shape:
    """One kind of request: prompt and answer in tokens, and its share of the arrivals."""

    prompt: int
    answer: int
    share: float


#: prompt tokens of the short ones
SHORT = 100


def mix(long_share: float) -> tuple[Shape, ...]:
    return (Shape(SHORT, 30, 1 - long_share), Shape(4000, 400, long_share))


@dataclass(frozen=True)
class Arrival:
    """Seconds of wall clock from the start, and what is asked."""

    at: float
    shape: Shape


def draw_shape(rng: random.Random, shapes: tuple[Shape, ...]) -> Shape:
    return rng.choices(shapes, [s.share for s in shapes])[0]


def arrivals(seed: int, rate: float, seconds: float, shapes: tuple[Shape, ...]) -> list[Arrival]:
    """Poisson arrivals at `rate` a second."""
    rng = random.Random(seed)
    found, at = [], rng.expovariate(rate)
    while at < seconds:
        found.append(Arrival(at, draw_shape(rng, shapes)))
        at += rng.expovariate(rate)
    return found


def request(shape: Shape, label: str) -> bytes:
    # the label comes first, so that no prompt is a prefix of an earlier one and none is in a cache
    text = f"{label} " + "abc " * (shape.prompt - len(label) // 4 - 1)
    body = json.dumps(
        {
            "model": MODEL,
            "stream": True,
            "max_tokens": shape.answer,
            "ignore_eos": True,
            "messages": [{"role": "user", "content": text}],
        }
    ).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return b"%sContent-Length: %d\r\n\r\n%s" % (head, len(body), body)


class Call(asyncio.Protocol):
    """One streamed request on a connection of its own; `done` gives (seconds to the first token | None, error)."""

    def __init__(self, data: bytes, started: float) -> None:
        self.loop = asyncio.get_running_loop()
        self.data, self.started = data, started
        self.done: asyncio.Future[tuple[float | None, str | None]] = self.loop.create_future()
        self.first: float | None = None
        self.head = b""
        self.tail = b""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # TCP only
        self.transport = transport
        transport.write(self.data)

    def data_received(self, data: bytes) -> None:
        if self.first is None:
            self.head += data
            if _CONTENT.search(self.head):
                self.first = self.loop.time() - self.started
        self.tail = (self.tail + data)[-400:]
        refused = b"\r\n\r\n" in self.head and not self.head.startswith(b"HTTP/1.1 200")
        if refused or self.tail.endswith(b"0\r\n\r\n"):
            self.finish()

    def connection_lost(self, exc: Exception | None) -> None:
        self.finish()

    def finish(self) -> None:
        if self.done.done():
            return
        error = None
        if not self.head.startswith(b"HTTP/1.1 200"):
            error = self.head[:60].decode("latin-1").split("\r\n")[0] or "no answer"
        elif b"[DONE]" not in self.tail:
            error = "stream without [DONE]"
        elif self.first is None:
            error = "no token"
        self.done.set_result((self.first, error))
        self.transport.close()


async def _call(port: int, shape: Shape, label: str, started: float) -> tuple[Shape, float | None, str | None]:
    loop = asyncio.get_running_loop()
    try:
        _, call = await loop.create_connection(lambda: Call(request(shape, label), started), "127.0.0.1", port)
    except OSError as e:
        return shape, None, str(e)
    try:
        return (shape, *await asyncio.wait_for(call.done, 120))
    except TimeoutError:
        call.transport.abort()
        return shape, None, "no end within 120 s"


async def capacity(ports: list[int], concurrency: int, seconds: float, shapes: tuple[Shape, ...]) -> float:
    """Requests a second (wall) that the replicas finish when each always has `concurrency` of them."""
    rng = random.Random(0)
    loop = asyncio.get_running_loop()
    began = loop.time()
    ends: list[float] = []

    async def worker(port: int, name: str) -> None:
        turn = 0
        while loop.time() - began < seconds:
            turn += 1
            _, _, error = await _call(port, draw_shape(rng, shapes), f"c{name}-{turn}", loop.time())
            if error is None:
                ends.append(loop.time() - began)

    await asyncio.gather(*(worker(p, f"{p}-{i}") for p in ports for i in range(concurrency)))
    skip = seconds / 4  # the first requests start together
    return sum(skip < end <= seconds for end in ends) / (seconds - skip)


async def offer(port: int, plan: list[Arrival], label: str) -> dict[str, Any]:
    """Send the plan; times to the first token (wall seconds), errors, and how late the client itself was."""
    loop = asyncio.get_running_loop()
    began = loop.time() + 0.1
    calls, lags = [], []
    for i, arrival in enumerate(plan):
        await asyncio.sleep(began + arrival.at - loop.time())
        lags.append(loop.time() - began - arrival.at)
        # the wait counts from the planned moment: a late client must not hide a slow gateway
        calls.append(asyncio.create_task(_call(port, arrival.shape, f"{label}-{i}", began + arrival.at)))
    ended = await asyncio.gather(*calls)
    return {
        "ttft": sorted(first for _, first, _ in ended if first is not None),
        "ttft_short": sorted(first for shape, first, _ in ended if first is not None and shape.prompt == SHORT),
        "errors": [error for _, _, error in ended if error is not None],
        "lag_p99": sorted(lags)[len(lags) * 99 // 100],
    }


def quantile(ranked: list[float], q: float) -> float:
    return ranked[min(len(ranked) - 1, int(q * len(ranked)))] if ranked else float("nan")


def consecutive_ports(count: int) -> int:
    """First of `count` free ports in a row."""
    for _ in range(100):
        first = free_port()
        sockets = [socket.socket() for _ in range(count)]
        try:
            for i, s in enumerate(sockets):
                s.bind(("127.0.0.1", first + i))
            return first
        except OSError:
            continue
        finally:
            for s in sockets:
                s.close()
    raise SystemExit(f"no {count} free ports in a row")


def gateway(folder: Path, policy: str, upstreams: list[int], speed: float, core: int | None) -> tuple[Child, int]:
    port = free_port()
    endpoints = ", ".join(f'"http://127.0.0.1:{p}"' for p in upstreams)
    # a scrape each emulated second
    scrape = max(20, round(1000 / speed))
    text = _CLUSTER.format(port=port, admin=free_port(), scrape=scrape, model=MODEL, policy=policy, endpoints=endpoints)
    path = folder / f"{policy}.yaml"
    path.write_text(text)
    argv = [sys.executable, "-m", "kilocard", "gateway", str(path)]
    return Child(argv, core=core, log=folder / f"{policy}.log"), port


def run(a: argparse.Namespace) -> dict[str, Any]:
    core, load_core = two_cores()
    results: dict[str, list[dict[str, Any]]] = {policy: [] for policy in a.policies}
    with tempfile.TemporaryDirectory(prefix="kilocard-bench-") as name:
        folder = Path(name)
        first = consecutive_ports(REPLICAS)
        ports = [first + i for i in range(REPLICAS)]
        argv = [sys.executable, "-m", "kilocard.emulator", "--port", str(first), "--count", str(REPLICAS)]
        argv += ["--model", MODEL, "--max-num-seqs", str(a.max_num_seqs), "--kv-tokens", str(a.kv_tokens)]
        argv += ["--speed", str(a.speed), "--profile", a.profile]
        with Child(argv, core=load_core, log=folder / "emulator.log") as emulator:
            for port in ports:
                emulator.wait_until(partial(answers, f"http://127.0.0.1:{port}/health"), 30)
            shapes = mix(a.long_share)
            able = uvloop.run(capacity(ports, a.max_num_seqs + 4, a.capacity_seconds, shapes))
            print(f"capacity {able / a.speed:.2f} requests/s in emulated time", file=sys.stderr)
            for seed in range(1, a.seeds + 1):
                plan = arrivals(seed, a.load * able, a.seconds, shapes)
                turn = seed % len(a.policies)
                for policy in (*a.policies[turn:], *a.policies[:turn]):
                    child, port = gateway(folder, policy, ports, a.speed, core)
                    with child:
                        child.wait_until(partial(answers, f"http://127.0.0.1:{port}/v1/models"), 30)
                        results[policy].append(uvloop.run(offer(port, plan, f"{policy}-{seed}")))
                    print(f"seed {seed}: {policy}", file=sys.stderr)
    return {
        "capacity_per_s": able / a.speed,
        "load": a.load,
        "long_share": a.long_share,
        "speed": a.speed,
        "replicas": REPLICAS,
        "max_num_seqs": a.max_num_seqs,
        "kv_tokens": a.kv_tokens,
        "policies": {policy: [_numbers(r, a.speed) for r in runs] for policy, runs in results.items()},
    }


def _numbers(r: dict[str, Any], speed: float) -> dict[str, Any]:
    return {
        "requests": len(r["ttft"]) + len(r["errors"]),
        "errors": len(r["errors"]),
        "error_kinds": sorted(set(r["errors"])),
        "ttft_s": {f"p{q}": quantile(r["ttft"], q / 100) * speed for q in (50, 95, 99)},
        "ttft_short_s": {f"p{q}": quantile(r["ttft_short"], q / 100) * speed for q in (50, 95, 99)},
        "client_lag_p99_s": r["lag_p99"] * speed,
    }


def verdict(policies: dict[str, list[dict[str, Any]]]) -> str:
    """Whether queue_depth has the lower p95 for each seed, of all requests and of the short ones, in words."""
    if "queue_depth" not in policies:
        return "queue_depth was not measured"
    lines = []
    for key, what in (("ttft_s", "TTFT p95 of queue_depth"), ("ttft_short_s", "the same of short requests")):
        ours = [r[key]["p95"] for r in policies["queue_depth"]]
        parts = []
        for other, runs in policies.items():
            if other == "queue_depth":
                continue
            pairs = list(zip(ours, (r[key]["p95"] for r in runs), strict=True))
            ratio = median(a / b for a, b in pairs)
            wins = sum(a < b for a, b in pairs)
            parts.append(f"lower than {other} for {wins} of {len(pairs)} seeds (median ratio {ratio:.2f})")
        lines.append(f"{what}: {', '.join(parts)}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.policies", description=__doc__)
    parser.add_argument("--policies", type=lambda text: tuple(text.split(",")), default=POLICIES)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--load", type=float, default=0.7, help="share of the measured capacity")
    parser.add_argument("--long-share", type=float, default=0.1, help="share of long requests (4,000 + 400 tokens)")
    parser.add_argument("--seconds", type=float, default=9, help="wall seconds of arrivals a run")
    parser.add_argument("--capacity-seconds", type=float, default=8)
    parser.add_argument("--speed", type=float, default=5)
    parser.add_argument("--max-num-seqs", type=int, default=8)
    parser.add_argument("--kv-tokens", type=int, default=20_000)
    parser.add_argument("--profile", default="a100-7b", help="speed profile of the emulator")
    parser.add_argument("--json", action="store_true")
    a = parser.parse_args()
    result = run(a)
    result["verdict"] = verdict(result["policies"])
    failed = sum(r["errors"] for runs in result["policies"].values() for r in runs)
    if a.json:
        print(json.dumps(result, indent=1))
        return 1 if failed else 0
    print("| policy | TTFT p50 s | p95 s | p99 s | short ones p95 s | errors | p95 by seed |")
    print("|---|---|---|---|---|---|---|")
    for policy, runs in result["policies"].items():
        middle = [median(r["ttft_s"][p] for r in runs) for p in ("p50", "p95", "p99")]
        short = median(r["ttft_short_s"]["p95"] for r in runs)
        seeds = ", ".join(f"{r['ttft_s']['p95']:.2f}" for r in runs)
        errors = sum(r["errors"] for r in runs)
        cells = [policy, *(f"{m:.2f}" for m in middle), f"{short:.2f}", str(errors or "none"), seeds]
        print("| " + " | ".join(cells) + " |")
    lag = max(r["client_lag_p99_s"] for runs in result["policies"].values() for r in runs)
    requests = sum(r["requests"] for r in next(iter(result["policies"].values())))
    print(f"\n{requests} requests a policy at {a.load:.0%} of {result['capacity_per_s']:.2f} requests/s;", end=" ")
    print(f"client late by {lag:.3f} s at p99 (all in emulated seconds)")
    for kind in sorted({k for runs in result["policies"].values() for r in runs for k in r["error_kinds"]}):
        print(f"error: {kind}", file=sys.stderr)
    print(result["verdict"])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
