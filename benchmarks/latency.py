"""What a proxy adds to a request's time: open loop at a fixed rate, direct and through each proxy in turn.

    python -m benchmarks.latency                                   # direct, nginx, kilocard at 1,000 requests a second
    python -m benchmarks.latency --proxies direct,nginx,kilocard,litellm --rate 40

Proxy on one core, load and stub on the other, as in benchmarks.gateway. `added` is the difference of the medians over
the rounds: p50 minus direct's p50, p99 minus direct's p99. Exit 1 when something was answered wrongly or not at all.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.gateway.children import Child, answers, free_port, two_cores
from benchmarks.gateway.proxies import ALL
from benchmarks.gateway.proxies.base import Proxy, Unavailable
from benchmarks.gateway.proxies.direct import Direct
from benchmarks.gateway.run import AUTHORIZATION, ROOT


def one(kind: type[Proxy], args: argparse.Namespace, turn: int) -> dict[str, Any]:
    proxy_core, load_core = two_cores()
    upstreams = [free_port(), free_port()]
    with tempfile.TemporaryDirectory(prefix="kilocard-bench-") as name:
        folder = Path(name)
        argv = [sys.executable, "-m", "benchmarks.gateway.stub", *map(str, upstreams)]
        with Child(argv, core=load_core, log=folder / "stub.log", cwd=ROOT) as stub:
            for port in upstreams:
                stub.wait_until(partial(answers, f"http://127.0.0.1:{port}/health"), 10)
            if kind is Direct:
                return _load(upstreams[0], 0, args, turn, load_core)
            proxy = kind(folder, free_port(), upstreams, args.cache)
            proxy.prepare()
            with Child(proxy.argv(), core=proxy_core, log=folder / "proxy.log", env=proxy.env()) as child:
                child.wait_until(lambda: answers(proxy.ready_url(), {"Authorization": AUTHORIZATION}), 120)
                return _load(proxy.port, child.pid, args, turn, load_core)


def _load(port: int, pid: int, args: argparse.Namespace, turn: int, core: int | None) -> dict[str, Any]:
    def run(seconds: float) -> dict[str, Any]:
        argv = [
            *(sys.executable, "-m", "benchmarks.gateway.open_loop", str(port), "--rate", str(args.rate)),
            *("--seconds", str(seconds), "--authorization", AUTHORIZATION, "--proxy", str(pid), "--seed", str(turn)),
        ]
        pinned = argv if core is None else ["taskset", "-c", str(core), *argv]
        done = subprocess.run(pinned, capture_output=True, text=True, timeout=seconds + 60, check=False, cwd=ROOT)
        line = next((text[5:] for text in done.stdout.splitlines() if text.startswith("JSON ")), None)
        if line is None:
            raise SystemExit(f"the load gave no summary:\n{done.stderr[-800:]}")
        return dict(json.loads(line))

    run(min(2.0, args.seconds))
    return run(args.seconds)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.latency", description=__doc__)
    parser.add_argument("--proxies", default="direct,nginx,kilocard")
    parser.add_argument("--rate", type=float, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--json", action="store_true")
    default = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "kilocard-benchmarks"
    parser.add_argument("--cache", type=Path, default=default)
    args = parser.parse_args()
    names = args.proxies.split(",")
    rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for turn in range(args.rounds):
        for name in names:
            print(f"round {turn + 1} of {args.rounds}: {name}", file=sys.stderr)
            try:
                rounds[name].append(one(ALL[name], args, turn))
            except Unavailable as error:
                print(f"skipped {name}: {error}", file=sys.stderr)
    if args.json:
        print(json.dumps({"rate": args.rate, "seconds": args.seconds, "rounds": rounds}, indent=1))
    else:
        print(_table(rounds))
    return int(any(_wrong(r) for each in rounds.values() for r in each))


def _wrong(r: dict[str, Any]) -> int:
    return int(r["errors"] + r["bad_status"] + r["unfinished"])


def _table(rounds: dict[str, list[dict[str, Any]]]) -> str:
    def median(name: str, key: str) -> float:
        return statistics.median(r[key] for r in rounds[name])

    lines = [
        "| proxy | p50 ms | p99 ms | added p50 ms | added p99 ms | µs/request | sent late, p99 ms | errors |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, each in rounds.items():
        if not each:
            continue
        p50, p99 = median(name, "p50_ms"), median(name, "p99_ms")
        added = ("–", "–")
        if name != "direct" and rounds.get("direct"):
            added = (f"{p50 - median('direct', 'p50_ms'):.2f}", f"{p99 - median('direct', 'p99_ms'):.2f}")
        cost = (
            "–" if name == "direct" else f"{sum(r['cpu_s'] for r in each) / sum(r['requests'] for r in each) * 1e6:.1f}"
        )
        spread = f"{min(r['p99_ms'] for r in each):.2f}–{max(r['p99_ms'] for r in each):.2f}"
        wrong = sum(_wrong(r) for r in each)
        gave_up = " (overloaded)" if any(r["gave_up"] for r in each) else ""
        lines.append(
            f"| {name} | {p50:.2f} | {p99:.2f} ({spread}) | {added[0]} | {added[1]} | {cost} "
            f"| {median(name, 'lag_p99_ms'):.2f} | {f'{wrong}{gave_up}' if wrong or gave_up else 'none'} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
