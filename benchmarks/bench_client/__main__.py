"""The load client beside aiohttp and httpx: processor time a chunk and a request, and how wrong its times are.

    python -m benchmarks.bench_client                       # 2,000 streams, a token each 50 ms on each
    python -m benchmarks.bench_client --clients kilocard --streams 500 --rounds 1

The server is told when to send each token and notes when it did (timed_server.py); it is pinned to one core, the client
to another. A stamp's error is what the client says minus what the server says, both on the kernel's monotonic clock.
Exit 1 when an answer is incomplete, or when a percentile that kilocard reports is off by more than a millisecond though
it does not say that it was the limit itself. Rounds in which it says so are measured again, a few times: they tell of
the machine. The peers can't say such a thing; their rounds follow one in which kilocard had its core.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.bench_client.against_truth import Series, percentile
from benchmarks.bench_client.load import Load
from benchmarks.bench_client.timed_server import Sent, TimedServer
from benchmarks.gateway.children import two_cores
from benchmarks.gateway.proxies.base import venv

ROOT = Path(__file__).parent.parent.parent
PROGRAMS = {"kilocard": "ours", "aiohttp": "peer_aiohttp", "httpx": "peer_httpx"}
PINNED = {"aiohttp": "aiohttp==3.13.2", "httpx": "httpx==0.28.1"}
ALLOWED_S = 0.001


@dataclass
class Result:
    client: str
    cpu_us: float
    #: of the stamps' error, seconds
    error_p50: float
    error_p99: float
    #: largest difference between a reported and a true percentile, seconds, by quantity
    worst: dict[str, float]
    cpu_share: float
    limited: str | None = None


def python_of(client: str, cache: Path) -> str:
    return sys.executable if client == "kilocard" else str(venv(cache, client, PINNED[client]) / "python")


def run(client: str, python: str, load: Load, core: int | None) -> dict[str, Any]:
    with tempfile.NamedTemporaryFile() as out:
        argv = [python, "-m", f"benchmarks.bench_client.{PROGRAMS[client]}", json.dumps(asdict(load)), out.name]
        if core is not None:
            argv = ["taskset", "-c", str(core), *argv]
        subprocess.run(argv, check=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"})
        return dict(json.loads(Path(out.name).read_text()))


def judge(client: str, said: dict[str, Any], log: dict[str, Sent], load: Load, per: int) -> Result:
    stamps: list[float] = []
    series = {"ttft": Series(), "itl": Series(), "e2e": Series()}
    for id, intended, seen in said["seen"]:
        sent = log[id].sent_ns
        if len(seen) != load.chunks:
            raise SystemExit(f"{client}: request {id} gave {len(seen)} of {load.chunks} tokens")
        stamps += [(a - b) * 1e-9 for a, b in zip(seen, sent, strict=True)]
        for name, at in (("ttft", 0), ("e2e", -1)):
            series[name].reported.append((seen[at] - intended) * 1e-9)
            series[name].true.append((sent[at] - intended) * 1e-9)
        series["itl"].reported += [(b - a) * 1e-9 for a, b in pairwise(seen)]
        series["itl"].true += [(b - a) * 1e-9 for a, b in pairwise(sent)]
    errors = [abs(error) for error in stamps]
    return Result(
        client,
        said["cpu_s"] / per * 1e6,
        percentile(errors, 0.5),
        percentile(errors, 0.99),
        {name: values.worst() for name, values in series.items()},
        said["cpu_s"] / said["wall_s"],
        said.get("health", {}).get("limited"),
    )


def once(client: str, load: Load, per: int, cache: Path) -> Result:
    ours, theirs = two_cores()
    with TimedServer(core=theirs) as server:
        here = replace(load, url=server.url)
        return judge(client, run(client, python_of(client, cache), here, ours), server.log(), here, per)


def measure(
    clients: list[str], load: Load, per: int, *, rounds: int, attempts: int, cache: Path
) -> dict[str, list[Result]]:
    found: dict[str, list[Result]] = {client: [] for client in clients}
    for _ in range(rounds):
        for client in clients:
            for attempt in range(attempts):
                result = once(client, load, per, cache)
                if result.limited is None or attempt == attempts - 1:
                    break
                print(f"again: {client}: {result.limited}", file=sys.stderr)
            found[client].append(result)
    return found


def table(title: str, unit: str, found: dict[str, list[Result]]) -> None:
    """Costs are medians of the rounds, ratios medians of the rounds' ratios; errors are the worst round's."""
    print(f"\n{title}")
    head = ("", unit, "ratio", "core", "stamp p50", "stamp p99", "TTFT", "ITL", "e2e")
    print("{:10} {:>11} {:>6} {:>6} {:>11} {:>11} {:>11} {:>11} {:>11}".format(*head))
    base = found.get("kilocard")
    for client, results in found.items():
        ratio = ""
        if base is not None:
            ratio = f"{statistics.median(a.cpu_us / b.cpu_us for a, b in zip(results, base, strict=True)):.1f}"
        errors = [max(r.error_p50 for r in results), max(r.error_p99 for r in results)]
        errors += [max(r.worst[name] for r in results) for name in ("ttft", "itl", "e2e")]
        cost, core = statistics.median(r.cpu_us for r in results), max(r.cpu_share for r in results)
        columns = " ".join(f"{error * 1e3:8.3f} ms" for error in errors)
        print(f"{client:10} {cost:11.1f} {ratio:>6} {core:6.0%} {columns}")
        for limited in {r.limited for r in results if r.limited}:
            print(f"{'':10} it says of itself: {limited}")


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--clients", default=",".join(PROGRAMS))
    options.add_argument("--streams", type=int, default=2000)
    options.add_argument("--gap", type=float, default=0.05, help="seconds from token to token of a stream")
    options.add_argument("--chunks", type=int, default=100)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--attempts", type=int, default=5, help="to measure a round while the client has its core")
    options.add_argument("--spread", action="store_true", help="tokens at their own times, not all streams at once")
    options.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "kilocard-benchmarks")
    options.add_argument("--json", action="store_true")
    chosen = options.parse_args()
    clients = chosen.clients.split(",")
    streams = Load("", chosen.streams, chosen.streams, chosen.chunks, chosen.gap, not chosen.spread, ramp_s=1.0)
    requests = Load("", 64, 6400, 1, 0.001, False, ramp_s=0.0)
    at_once = "each at its own time" if chosen.spread else "all at once"
    parts = [
        (f"{chosen.streams} streams, a token each {chosen.gap * 1e3:.0f} ms, {at_once}", "µs/chunk", streams),
        ("requests of one token, 64 at once", "µs/request", requests),
    ]
    measured = {}
    for title, unit, load in parts:
        per = load.requests * load.chunks
        found = measure(clients, load, per, rounds=chosen.rounds, attempts=chosen.attempts, cache=chosen.cache)
        measured[unit] = {client: [asdict(result) for result in results] for client, results in found.items()}
        if not chosen.json:
            table(title, unit, found)
    if chosen.json:
        print(json.dumps(measured))
    ours = [result for found in measured.values() for result in found.get("kilocard", [])]
    trusted = [result for result in ours if result["limited"] is None]
    return 1 if any(off > ALLOWED_S for result in trusted for off in result["worst"].values()) else 0


if __name__ == "__main__":
    sys.exit(main())
