"""`python -m benchmarks.scrape`: what it costs to scrape a thousand replicas once a second.

The stub (one process on the other core) serves vLLM-like pages of ~50 KB; every replica has its own connection, as in
life. The poller runs alone in a process pinned to one core, on uvloop as in the gateway, and its processor time
(user and system, read at both ends of the window) is what counts. The peer reads the same pages the usual way: aiohttp
and the parser of prometheus_client. It can't do a thousand a second, so it does what it can, and its cost per page is
multiplied: that row is an extrapolation.

Exit 0: every replica was scraped every second without a failure. 1: not so. A time alone never fails.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.gateway.children import Child, answers, free_port, two_cores
from benchmarks.gateway.pages import metrics_page
from benchmarks.gateway.proxies.base import Unavailable, venv

ROOT = Path(__file__).resolve().parents[1]

#: run by the peer's own interpreter, so it may import nothing of ours
PEER = """
import asyncio, json, sys, time
import aiohttp
from prometheus_client.parser import text_string_to_metric_families

url, replicas, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
WANTED = {"vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"}

async def main():
    done = 0
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        async def one():
            async with session.get(url) as answer:
                text = await answer.text()
            values = {}
            for family in text_string_to_metric_families(text):
                for sample in family.samples:
                    if sample.name in WANTED:
                        values[sample.name] = sample.value
            assert len(values) == 3, values
        await asyncio.gather(*(one() for _ in range(replicas)))
        cpu, started = time.process_time(), time.perf_counter()
        while time.perf_counter() - started < seconds:
            turn = time.perf_counter()
            await asyncio.gather(*(one() for _ in range(replicas)))
            done += replicas
            await asyncio.sleep(max(0.0, 1.0 - (time.perf_counter() - turn)))
        return {"scrapes": done, "cpu_s": time.process_time() - cpu, "seconds": time.perf_counter() - started}

print("JSON " + json.dumps(asyncio.run(main())))
"""


async def poll(url: str, replicas: int, seconds: float) -> dict[str, Any]:
    """Run our poller for `seconds` after a warm-up of 2 s."""
    from kilocard.core.load import LoadSample
    from kilocard.engines.base import MetricsPage
    from kilocard.metrics.dialect import Dialect
    from kilocard.scrape.poller import Poller

    # the quantities that a vLLM page has; the engine's file has older names besides
    dialect = Dialect(
        running=("vllm:num_requests_running",),
        waiting=("vllm:num_requests_waiting",),
        kv_usage=("vllm:kv_cache_usage_perc",),
        preemptions_total=("vllm:num_preemptions_total",),
        prompt_tokens_total=("vllm:prompt_tokens_total",),
        generation_tokens_total=("vllm:generation_tokens_total",),
        kv_config=("vllm:cache_config_info", "block_size", "num_gpu_blocks"),
        sum_over=("engine",),
    )
    loop = asyncio.get_running_loop()
    last: dict[str, float] = {}
    gaps: list[float] = []
    wrong = 0

    def report(replica: str, sample: LoadSample | None) -> None:
        nonlocal wrong
        now = loop.time()
        if sample is None or sample.running is None or sample.waiting is None or sample.kv_usage is None:
            wrong += 1
            return
        if replica in last:
            gaps.append(now - last[replica])
        last[replica] = now

    poller = Poller(report, interval=1.0, rng=random.Random(1))
    for i in range(replicas):
        poller.add(f"replica-{i}", url, (MetricsPage("/metrics", dialect),))
    poller.start()
    await asyncio.sleep(2.0)
    wrong, start, cpu, began = 0, poller.succeeded, time.process_time(), loop.time()
    gaps.clear()
    await asyncio.sleep(seconds)
    result = {
        "scrapes": poller.succeeded - start,
        "wrong": wrong,
        "cpu_s": time.process_time() - cpu,
        "seconds": loop.time() - began,
        "gap_p99_s": sorted(gaps)[len(gaps) * 99 // 100] if gaps else None,
    }
    await poller.close()
    return result


def _run(argv: list[str], core: int | None, seconds: float) -> dict[str, Any]:
    pinned = argv if core is None else ["taskset", "-c", str(core), *argv]
    done = subprocess.run(pinned, capture_output=True, text=True, timeout=seconds * 3 + 60, check=False, cwd=ROOT)
    for line in done.stdout.splitlines():
        if line.startswith("JSON "):
            return dict(json.loads(line[5:]))
    raise SystemExit(f"{argv[0]} gave no result (exit {done.returncode}):\n{done.stderr[-1500:]}")


def measure(replicas: int, seconds: float, peer_replicas: int, cache: Path) -> dict[str, Any]:
    poller_core, stub_core = two_cores()
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    result: dict[str, Any] = {"replicas": replicas, "page_bytes": len(metrics_page(1, 0, 1))}
    with tempfile.TemporaryDirectory(prefix="kilocard-bench-") as name:
        stub_argv = [sys.executable, "-m", "benchmarks.gateway.stub", str(port)]
        with Child(stub_argv, core=stub_core, log=Path(name) / "stub.log", cwd=ROOT) as stub:
            stub.wait_until(partial(answers, f"{url}/health"), 10)
            own = [sys.executable, "-m", "benchmarks.scrape", "--child", url]
            own += ["--replicas", str(replicas), "--seconds", str(seconds)]
            result["kilocard"] = _costs(_run(own, poller_core, seconds), replicas)
            if peer_replicas:
                try:
                    python = venv(cache, "scrape-peer", "aiohttp", "prometheus_client") / "python"
                    argv = [str(python), "-c", PEER, f"{url}/metrics", str(peer_replicas), str(seconds)]
                    result["aiohttp + prometheus_client"] = _costs(_run(argv, poller_core, seconds), replicas)
                except Unavailable as e:
                    print(f"skipped the peer: {e}", file=sys.stderr)
    return result


def _costs(counts: dict[str, Any], replicas: int) -> dict[str, Any]:
    per_page = counts["cpu_s"] / max(1, counts["scrapes"])
    return {**counts, "us_per_page": per_page * 1e6, "core_share_at_1_hz": per_page * replicas}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scrape", description=__doc__)
    parser.add_argument("--replicas", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--peer-replicas", type=int, default=20, help="0: no peer")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", metavar="URL", help=argparse.SUPPRESS)
    default = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "kilocard-benchmarks"
    parser.add_argument("--cache", type=Path, default=default)
    a = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # a connection a replica, in children too
    if hard < a.replicas + 100:
        print(f"at most {hard} open files here: raise the limit or take fewer --replicas", file=sys.stderr)
        return 2
    if a.child:
        import uvloop

        print("JSON " + json.dumps(uvloop.run(poll(a.child, a.replicas, a.seconds))))
        return 0
    result = measure(a.replicas, a.seconds, a.peer_replicas, a.cache)
    ours = result["kilocard"]
    expected = a.replicas * ours["seconds"]
    complete = ours["wrong"] == 0 and ours["scrapes"] >= 0.99 * expected
    if a.json:
        print(json.dumps({**result, "complete": complete}, indent=1))
        return 0 if complete else 1
    print(f"{a.replicas} replicas at 1 Hz, pages of {result['page_bytes']:,} bytes\n")
    print("| reader | µs/page | core at 1 Hz | pages read | |\n|---|---|---|---|---|")
    for name in ("kilocard", "aiohttp + prometheus_client"):
        if name in result:
            r = result[name]
            note = "measured" if name == "kilocard" else f"extrapolated from {r['scrapes'] / r['seconds']:.0f} a second"
            print(f"| {name} | {r['us_per_page']:.0f} | {r['core_share_at_1_hz']:.1%} | {r['scrapes']:,} | {note} |")
    print(f"\nkilocard: {ours['scrapes']:,} of {expected:,.0f} due, {ours['wrong']} without a sample, ", end="")
    print(
        f"time between two pages of one replica p99 {ours['gap_p99_s']:.3f} s"
        if ours["gap_p99_s"]
        else "no second page"
    )
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(main())
