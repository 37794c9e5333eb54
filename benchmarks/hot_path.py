"""Processor time of one request in the gateway, without sockets: our own code, and nothing of the kernel.

    python benchmarks/hot_path.py                      # what each feature adds
    python benchmarks/hot_path.py --profile 30         # where it goes: cProfile's table, everything on

The real gateway with transports that only count bytes: 64 clients and two replicas, a request of 1 KB, an answer of
500 B. Best of many rounds, since others on the machine can only make a round longer. The ledger's thread runs beside it
and is measured apart.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import gc
import hashlib
import os
import pstats
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, cast

import uvloop

from benchmarks.gateway.pages import MODEL, completion, request_body
from benchmarks.gateway.pages import event as event_around
from kilocard.cli.wiring import gateway_of
from kilocard.core.replica import Endpoint, Found
from kilocard.gateway.downstream import ClientConnection
from kilocard.gateway.plane import Plane
from kilocard.gateway.server import Gateway
from kilocard.gateway.upstream import UpstreamConnection
from kilocard.spec.load import load

CLIENTS = 64
TURNS = 10
CHUNKS = 2000
KEY = "kc-hot-path"
LIMITS = "{requests_per_minute: 100000000, tokens_per_minute: 100000000000, concurrency: 10000}"
CLUSTER = """
gateway:
  listen: "127.0.0.1:0"
  admin: "127.0.0.1:0"
  store: "{folder}/kilocard.db"
{gateway}
models:
  {model}: {{policy: queue_depth, pools: {{replicas: 100}}}}
pools:
  replicas: {{engine: external, endpoints: ["http://127.0.0.1:9"]}}
tenants:
  bench: {{keys: ["sha256:{digest}"], models: [{model}]{limits}}}
"""
VARIANTS = (
    ("key, routing, metrics, usage", "  usage: {enabled: false}", ""),
    ("and limits", "  usage: {enabled: false}", f", limits: {LIMITS}"),
    ("and the ledger", "", f", limits: {LIMITS}"),
)


class Wire:
    """A transport that nobody reads. Counts what is written; `told` hears of each write."""

    def __init__(self) -> None:
        self.writes = 0

    def write(self, data: bytes) -> None:
        self.writes += 1

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str) -> None:
        return None

    def close(self) -> None:
        pass

    abort = pause_reading = resume_reading = close


class Bench:
    def __init__(self, gateway: Gateway) -> None:
        self.plane: Plane = gateway.plane
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n"
        body = request_body(stream=False, tokens=64)
        framing = b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
        self.request = head.encode() + framing + body
        self.answer = completion()
        self.clients = [ClientConnection(self.plane) for _ in range(CLIENTS)]
        self.wires = [Wire() for _ in self.clients]
        for client, wire in zip(self.clients, self.wires, strict=True):
            client.connection_made(cast(asyncio.Transport, wire))
        self.upstreams: list[UpstreamConnection] = []
        for target in self.plane.targets.values():
            for _ in range(CLIENTS):
                upstream = UpstreamConnection(target.connections)
                upstream.connection_made(cast(asyncio.Transport, Wire()))
                target.connections.give_back(upstream)
                self.upstreams.append(upstream)

    def turn(self) -> None:
        """Every client asks once and is answered."""
        request, answer = self.request, self.answer
        for client in self.clients:
            client.data_received(request)
        self.plane.outbox.send()
        for upstream in self.upstreams:
            if upstream.receiver is not None:
                upstream.data_received(answer)
        self.plane.outbox.send()

    def chunks(self, rounds: int) -> float:
        """µs of one chunk of a stream, once it runs (the best round)."""
        body = request_body(stream=True, tokens=64)
        head, _, _ = self.request.partition(b"Content-Length")
        self.clients[0].data_received(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self.plane.outbox.send()
        upstream = next(upstream for upstream in self.upstreams if upstream.receiver is not None)
        event = b"0".join(event_around())
        chunk = b"%x\r\n%b\r\n" % (len(event), event)
        upstream.data_received(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        upstream.data_received(chunk)
        passing = upstream.passing
        assert passing is not None
        passing._send, passing.straight = len, True  # a socket that takes all at once
        before, best = passing.events, float("inf")
        for _ in range(rounds):
            began = time.thread_time()
            for _ in range(CHUNKS):
                upstream.data_received(chunk)
            best = min(best, time.thread_time() - began)
        assert passing.events - before == rounds * CHUNKS and passing.straight
        upstream.data_received(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
        return best / CHUNKS * 1e6

    def check(self) -> None:
        before = [wire.writes for wire in self.wires]
        self.turn()
        assert [wire.writes - n for wire, n in zip(self.wires, before, strict=True)] == [1] * CLIENTS
        assert not self.plane.exchanges


async def measure(gateway_keys: str, limits: str, rounds: int, profile: int) -> tuple[float, float, float]:
    """µs of the event loop's thread for a request (the best round), of all other threads (the mean), of a chunk."""
    with tempfile.TemporaryDirectory() as folder:
        digest = hashlib.sha256(KEY.encode()).hexdigest()
        text = CLUSTER.format(folder=folder, gateway=gateway_keys, model=MODEL, digest=digest, limits=limits)
        file = Path(folder) / "cluster.yaml"
        file.write_text(text)
        gateway = gateway_of(load(file, env={}))
        await gateway.start()
        for number in range(2):
            gateway.apply(Found(Endpoint(f"replicas/{number}", "replicas", "http://127.0.0.1:9")))
        bench = Bench(gateway)
        bench.check()
        best, others = float("inf"), 0.0
        profiler = cProfile.Profile()
        for _ in range(rounds):
            everything, mine = time.process_time(), time.thread_time()
            if profile:
                profiler.enable()
            for _ in range(TURNS):
                bench.turn()
            if profile:
                profiler.disable()
            spent = time.thread_time() - mine
            await asyncio.sleep(0.02)  # the ledger and the clock have their turn
            best = min(best, spent)
            others += (time.process_time() - everything) - (time.thread_time() - mine)
        bench.check()
        chunk = bench.chunks(rounds)
        if profile:
            pstats.Stats(profiler).sort_stats("tottime").print_stats(profile)
        for client in bench.clients:
            client.connection_lost(None)
        await gateway.stop()
        return best / (TURNS * CLIENTS) * 1e6, others / (rounds * TURNS * CLIENTS) * 1e6, chunk


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--profile", type=int, default=0, help="lines of cProfile's table; the times are then too long")
    options = parser.parse_args()
    # as cli/running.py has it
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    variants: Any = VARIANTS[-1:] if options.profile else VARIANTS
    print("| on | µs a request | other threads, µs | µs a streamed chunk |\n|---|---:|---:|---:|")
    for name, gateway_keys, limits in variants:
        loop, others, chunk = uvloop.run(measure(gateway_keys, limits, options.rounds, options.profile))
        print(f"| {name} | {loop:.1f} | {others:.1f} | {chunk:.2f} |", flush=True)
    return 0


if __name__ == "__main__":
    os.chdir(Path(__file__).parent.parent)
    sys.exit(main())
