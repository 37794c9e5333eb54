"""Ten thousand streams at once, a chunk a second on each: memory per stream, processor time, and does each complete?

    python -m benchmarks.idle_streams                       # kilocard and nginx, 10,000 streams
    python -m benchmarks.idle_streams --streams 2000 --proxies kilocard --seconds 10

Every stream has to give each chunk that it was asked for and `[DONE]`; exit 1 if one does not. Memory is the proxy's
resident set with all streams running minus that before the first one; the kernel's socket buffers are not in it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import uvloop

from benchmarks.gateway.children import Child, answers, free_port, two_cores
from benchmarks.gateway.closed_loop import post
from benchmarks.gateway.cpu import cpu_seconds, tree
from benchmarks.gateway.pages import request_body
from benchmarks.gateway.proxies.base import Proxy, Unavailable
from benchmarks.gateway.proxies.kilocard import Kilocard
from benchmarks.gateway.proxies.nginx import Nginx
from benchmarks.gateway.run import AUTHORIZATION, ROOT
from benchmarks.gateway.streams import Stream

#: new connections a second
RAMP = 2000


class WideNginx(Nginx):
    connections = 65536


KINDS: dict[str, type[Proxy]] = {"kilocard": Kilocard, "nginx": WideNginx}


def rss_kib(root: int) -> int:
    """Resident set of the tree, KiB."""
    total = 0
    for pid in tree(root):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                total += int(line.split()[1])
    return total


async def run(port: int, pid: int, streams: int, seconds: float) -> dict[str, Any]:
    loop = asyncio.get_running_loop()
    ramp = streams / RAMP
    tokens = int(ramp + seconds + 4)
    request = post("/v1/chat/completions", AUTHORIZATION, request_body(stream=True, tokens=tokens))
    clients: list[Stream] = []
    before = rss_kib(pid)
    for place in range(streams):
        _, client = await loop.create_connection(partial(Stream, request, None), "127.0.0.1", port)
        clients.append(client)
        if place % (RAMP // 50) == 0:
            await asyncio.sleep(0.02)
    await asyncio.sleep(2)
    cpu, at, chunks = cpu_seconds(pid), time.perf_counter(), sum(client.chunks for client in clients)
    await asyncio.sleep(seconds / 2)
    with_all, open_now = rss_kib(pid), sum(not client.ended.done() for client in clients)
    await asyncio.sleep(seconds / 2)
    cpu, took = cpu_seconds(pid) - cpu, time.perf_counter() - at
    chunks = sum(client.chunks for client in clients) - chunks
    await asyncio.wait([client.ended for client in clients], timeout=3 * tokens + 30)
    for client in clients:
        client.transport.abort()
    return {
        "streams": streams,
        "open": open_now,
        "kib_per_stream": (with_all - before) / streams,
        "rss_mib": with_all / 1024,
        "core_share": cpu / took,
        "us_per_chunk": cpu / max(1, chunks) * 1e6,
        "chunks_per_s": chunks / took,
        "incomplete": sum(not (c.ok and c.finished and c.saw_done and c.chunks == tokens) for c in clients),
    }


def one(kind: type[Proxy], streams: int, seconds: float) -> dict[str, Any]:
    proxy_core, load_core = two_cores()
    if load_core is not None:
        os.sched_setaffinity(0, {load_core})
    upstreams = [free_port(), free_port()]
    with tempfile.TemporaryDirectory(prefix="kilocard-bench-") as name:
        folder = Path(name)
        argv = [sys.executable, "-m", "benchmarks.gateway.stub", *map(str, upstreams)]
        slow = ["--interval", "1.0", "--phases", "100"]
        with Child([*argv, *slow], core=load_core, log=folder / "stub.log", cwd=ROOT) as stub:
            for port in upstreams:
                stub.wait_until(partial(answers, f"http://127.0.0.1:{port}/health"), 10)
            proxy = kind(folder, free_port(), upstreams, folder)
            proxy.prepare()
            with Child(proxy.argv(), core=proxy_core, log=folder / "proxy.log", env=proxy.env()) as child:
                child.wait_until(lambda: answers(proxy.ready_url(), {"Authorization": AUTHORIZATION}), 30)
                return uvloop.run(run(proxy.port, child.pid, streams, seconds))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.idle_streams", description=__doc__)
    parser.add_argument("--proxies", default="kilocard,nginx")
    parser.add_argument("--streams", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    results = {}
    for name in args.proxies.split(","):
        print(name, file=sys.stderr)
        try:
            results[name] = one(KINDS[name], args.streams, args.seconds)
        except Unavailable as error:
            print(f"skipped {name}: {error}", file=sys.stderr)
    if args.json:
        print(json.dumps(results, indent=1))
    else:
        print("| proxy | streams at once | KiB/stream | RSS MiB | share of a core | µs/chunk | chunks/s | incomplete |")
        print("|---|---|---|---|---|---|---|---|")
        for name, r in results.items():
            print(
                f"| {name} | {r['open']:,} | {r['kib_per_stream']:.1f} | {r['rss_mib']:.0f} | {r['core_share']:.0%} "
                f"| {r['us_per_chunk']:.1f} | {r['chunks_per_s']:,.0f} | {r['incomplete'] or 'none'} |"
            )
    return int(any(r["incomplete"] for r in results.values()))


if __name__ == "__main__":
    sys.exit(main())
