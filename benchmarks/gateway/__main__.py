"""`python -m benchmarks.gateway`: run the rounds, print the table or one JSON document.

Exit 0: every proxy answered without an error (a time is never a failure). 1: something went wrong. 2: bad usage.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

from benchmarks.gateway import report
from benchmarks.gateway.children import ChildError, two_cores
from benchmarks.gateway.closed_loop import have_wrk
from benchmarks.gateway.proxies import ALL
from benchmarks.gateway.proxies.base import Unavailable
from benchmarks.gateway.run import Load, one


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gateway", description=__doc__)
    parser.add_argument("--proxies", help=f"comma list of {', '.join(ALL)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8, help="window of the requests")
    parser.add_argument("--stream-seconds", type=float, default=10, help="window of the chunks")
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument(
        "--phases", type=int, default=5, help="groups that a replica's streams are written in; 1: a burst"
    )
    parser.add_argument("--own-client", action="store_true", help="not wrk even if it is there")
    parser.add_argument("--quick", action="store_true", help="one short round of direct, nginx and kilocard")
    parser.add_argument("--json", action="store_true")
    default = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "kilocard-benchmarks"
    parser.add_argument("--cache", type=Path, default=default, help="folder for the peers' virtual environments")
    return parser.parse_args()


def main() -> int:
    a = _arguments()
    names = a.proxies.split(",") if a.proxies else [n for n, p in ALL.items() if p.default]
    if a.quick:
        a.rounds, a.seconds, a.stream_seconds = 1, 2, 3
        names = a.proxies.split(",") if a.proxies else ["direct", "nginx", "kilocard"]
    if unknown := [n for n in names if n not in ALL]:
        print(f"unknown proxy {', '.join(unknown)}; there are {', '.join(ALL)}", file=sys.stderr)
        return 2
    own = a.own_client or not have_wrk()
    load = Load(a.connections, a.streams, 1.0 if a.quick else 2.0, a.seconds, a.stream_seconds, a.phases, own)
    cores = two_cores()
    if cores[0] is None:
        print("only one core: proxy and load share it, ratios are still of one run", file=sys.stderr)
    rounds: list[dict[str, dict[str, Any]]] = []
    versions: dict[str, str] = {}
    skipped: dict[str, str] = {}
    failed: dict[str, str] = {}
    for turn in range(a.rounds):
        rounds.append({})
        for name in names:
            if name in skipped or name in failed:
                continue
            print(f"round {turn + 1} of {a.rounds}: {name}", file=sys.stderr)
            try:
                rounds[-1][name] = one(ALL[name], load, cores, a.cache)
            except Unavailable as e:
                skipped[name] = str(e)
            except ChildError as e:
                failed[name] = str(e)
            else:
                for problem in rounds[-1][name]["problems"]:
                    print(f"  {problem}", file=sys.stderr)
                versions[name] = ALL[name](a.cache, 0, [], a.cache).version()
    rows = report.summary(rounds)
    wrong = bool(failed) or any(r["problems"] for r in rows.values())
    machine = {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "pinned": cores[0] is not None,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_average": os.getloadavg()[0],
    }
    if a.json:
        document = {
            "machine": machine,
            "load": {**vars(load), "client": "own" if own else "wrk"},
            "versions": versions,
            "proxies": rows,
            "skipped": skipped,
            "failed": failed,
            "rounds": rounds,
        }
        print(json.dumps(document, indent=1))
    else:
        print(report.table(rows))
        print(
            f"\n{machine['cpu']}, {machine['cores']} cores, Linux {machine['kernel']}, Python {machine['python']}, ",
            end="",
        )
        print(f"{'own client' if own else 'wrk'}, load average at the end {machine['load_average']:.1f}")
        print("; ".join(v for v in versions.values() if v))
        if names == ["nginx"] or "nginx" not in rows:
            print("no nginx in this run: no ratios")
    for name, why in skipped.items():
        print(f"skipped {name}: {why}", file=sys.stderr)
    for name, why in failed.items():
        print(f"FAILED {name}: {why}", file=sys.stderr)
    return 1 if wrong else 0


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


if __name__ == "__main__":
    sys.exit(main())
