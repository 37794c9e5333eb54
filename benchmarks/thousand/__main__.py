"""`python -m benchmarks.thousand`: a thousand live emulated replicas behind one real gateway.

All engines run in one process (`kilocard emulate --count 1000`), on the wall clock, each with its own port, queue and
KV cache. The gateway (`kilocard gateway`) scrapes each of them every second, in both runs. The client asks for short
streams, first at the engines' own ports in turn, then through the gateway: the difference is what the gateway adds.

    python -m benchmarks.thousand                               # 1,000 replicas, 1,000 requests a second, a minute
    python -m benchmarks.thousand --replicas 100 --rate 100 --seconds 5
    python -m benchmarks.thousand --kilocard PATH/bin/kilocard  # an installation with the hot path compiled

The gateway has a core to itself, engines and client share another, in both runs. With --unpinned the kernel decides: on
two cores three busy programs then wait for each other's time slices, some milliseconds at each step of the way.

Exit 1: a request failed, was late to leave (the client or the machine is full), or a replica was not read for more than
three scrape intervals.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.gateway.children import two_cores
from benchmarks.gateway.cpu import cpu_seconds, peak_rss_mib
from benchmarks.thousand.fleet import MODEL, ROOT, Engines, Gateway, program
from benchmarks.thousand.readings import Looks, at_most, decisions

#: seconds that a request may leave later than it was meant to, at p99: else somebody else sets the pace
MOST_LAG_S = 0.05
#: scrape intervals that a reading may be old
MOST_AGE = 3.0
FAILURES = ("bad_status", "incomplete", "cut", "unfinished")


def drive(o: argparse.Namespace, ports: list[int], pids: dict[str, int], core: int | None) -> dict[str, Any]:
    """One run of the client, and the processor time of the others in its measured window."""
    argv = [
        *(sys.executable, "-m", "benchmarks.thousand.client", ",".join(map(str, ports)), "--model", MODEL),
        *("--rate", str(o.rate), "--seconds", str(o.seconds), "--warm", str(o.warm), "--seed", str(o.seed)),
        *("--tokens", str(o.tokens), "--prompt", str(o.prompt)),
    ]
    if core is not None:
        argv = ["taskset", "-c", str(core), *argv]
    found: dict[str, Any] | None = None
    marks: list[dict[str, float]] = []
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=ROOT) as client:
        assert client.stdout is not None
        for line in client.stdout:
            if line.startswith(("BEGIN", "END")):
                marks.append({name: cpu_seconds(pid) for name, pid in pids.items()})
            elif line.startswith("JSON "):
                found = json.loads(line[5:])
    if found is None or len(marks) != 2:
        raise SystemExit("the client gave no summary")
    window = found["seconds"] or 1.0
    cores = {name: (marks[1][name] - marks[0][name]) / window for name in pids}
    return found | {"cores": cores | {"client": found["cpu_s"] / window}}


def measure(o: argparse.Namespace) -> dict[str, Any]:
    kilocard = program(o.kilocard)
    gateway_core, load_core = (None, None) if o.unpinned else two_cores()
    with tempfile.TemporaryDirectory(prefix="kilocard-thousand-") as name:
        folder = Path(name)
        began = time.perf_counter()
        engines = Engines(kilocard, o.replicas, o.speed, o.metrics_bytes, folder, load_core)
        with engines.child:
            up_s = time.perf_counter() - began
            began = time.perf_counter()
            gateway = Gateway(kilocard, engines.ports, o.policy, o.scrape, folder, gateway_core)
            with gateway.child:
                read_s = time.perf_counter() - began
                pids = {"engines": engines.child.pid, "gateway": gateway.child.pid}
                direct = drive(o, engines.ports, pids, load_core)
                first_direct = engines.first_tokens()
                before = gateway.get("/metrics")
                with Looks(gateway, 2.0) as looks:
                    through = drive(o, [gateway.port], pids, load_core)
                after = gateway.get("/metrics")
                first_through = engines.first_tokens()
                began = time.perf_counter()
                page = gateway.get("/metrics")
                metrics_s = time.perf_counter() - began
                status = _status(kilocard, gateway)
                rss = {name: peak_rss_mib(pid) for name, pid in pids.items()}
    counts = (decisions(before), decisions(after))
    direct["engine_ttft_s"] = _mean((0.0, 0.0), first_direct)
    through["engine_ttft_s"] = _mean(first_direct, first_through)
    return {
        "replicas": o.replicas,
        "rate_per_s": o.rate,
        "tokens": o.tokens,
        "engines_up_s": up_s,
        "gateway_ready_s": read_s,
        "direct": direct,
        "gateway": through,
        "added_ttft_s": {
            key: through["ttft_s"][key] - direct["ttft_s"][key] for key in ("p50", "p95", "p99")
        } if through["ttft_s"] and direct["ttft_s"] else None,
        "decision_s": {key: at_most(*counts, share) for key, share in (("p50", 0.5), ("p99", 0.99))},
        "fleet_view": looks.found() | {"metrics_s": metrics_s, "metrics_bytes": len(page)} | status,
        "rss_mib": rss,
    }  # fmt: skip


def _mean(before: tuple[float, float], after: tuple[float, float]) -> float:
    return (after[0] - before[0]) / max(1.0, after[1] - before[1])


def _status(kilocard: list[str], gateway: Gateway) -> dict[str, Any]:
    began = time.perf_counter()
    done = subprocess.run(
        [*kilocard, "status", "--admin", f"127.0.0.1:{gateway.admin}"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return {"status_s": time.perf_counter() - began, "status_lines": done.stdout.count("\n"), "status": done.stdout}


def wrong(found: dict[str, Any], o: argparse.Namespace) -> list[str]:
    """What must not be. A time alone is never wrong."""
    problems = []
    for way in ("direct", "gateway"):
        run = found[way]
        for kind in FAILURES:
            if run[kind]:
                problems.append(f"{way}: {run[kind]} requests {kind.replace('_', ' ')}")
        if run["gave_up"]:
            problems.append(f"{way}: thousands of requests were under way at once, so the run was ended")
        elif run["lag_s"]["p99"] > MOST_LAG_S:
            problems.append(f"{way}: requests left {run['lag_s']['p99'] * 1e3:.0f} ms late at p99: the machine is full")
    age = found["fleet_view"]["age_s"]
    if age is not None and age["max"] > MOST_AGE * o.scrape:
        problems.append(f"a reading of a replica was {age['max']:.1f} s old; they are made every {o.scrape:g} s")
    return problems


def table(found: dict[str, Any], o: argparse.Namespace) -> str:
    rows = ["| | direct | through the gateway |", "|---|---|---|"]
    ways = (found["direct"], found["gateway"])

    def row(name: str, *cells: str) -> None:
        rows.append(f"| {name} | {' | '.join(cells)} |")

    row("requests/s", *(f"{run['requests_per_s']:,.0f}" for run in ways))
    row("requests, failed", *(f"{run['requests']:,}, {sum(run[kind] for kind in FAILURES)}" for run in ways))
    for key in ("ttft_s", "e2e_s"):
        for share in ("p50", "p99"):
            row(f"{key[:-2]} {share} ms", *(f"{run[key][share] * 1e3:.2f}" if run[key] else "–" for run in ways))
    row("ttft inside the engines, mean ms", *(f"{run['engine_ttft_s'] * 1e3:.2f}" for run in ways))
    row("sent late, p99 ms", *(f"{run['lag_s']['p99'] * 1e3:.2f}" for run in ways))
    for name in ("gateway", "engines", "client"):
        row(f"core: {name}", *(f"{run['cores'][name]:.0%}" if name in run["cores"] else "–" for run in ways))
    view, added, choice = found["fleet_view"], found["added_ttft_s"], found["decision_s"]
    rows += ["", f"{o.replicas:,} replicas up in {found['engines_up_s']:.1f} s, all read by the gateway "
             f"{found['gateway_ready_s']:.1f} s after its start."]  # fmt: skip
    if added:
        rows.append(f"Added TTFT: p50 {added['p50'] * 1e3:.2f}, p99 {added['p99'] * 1e3:.2f} ms.")
    if choice["p99"]:
        rows.append(f"Decision: p50 at most {choice['p50'] * 1e6:g}, p99 at most {choice['p99'] * 1e6:g} µs.")
    if spread := view["in_flight"]:
        rows.append(
            "Requests on a replica, share of replicas: "
            + ", ".join(f"{count}: {share:.1%}" for count, share in sorted(spread.items()))
            + "."
        )
    if age := view["age_s"]:
        rows.append(f"Age of readings: p50 {age['p50']:.2f}, p99 {age['p99']:.2f}, most {age['max']:.2f} s.")
    if asked := view["state_s"]:
        rows += [
            f"/state: p50 {asked['p50'] * 1e3:.0f}, most {asked['max'] * 1e3:.0f} ms, "
            f"{view['state_bytes'] / 1e3:.0f} kB.",
            f"/metrics: {view['metrics_s'] * 1e3:.0f} ms, {view['metrics_bytes'] / 1e3:.0f} kB.",
            f"kilocard status: {view['status_s']:.2f} s, {view['status_lines']} lines.",
        ]
    rows.append("RSS: " + ", ".join(f"{name} {mib:.0f} MiB" for name, mib in found["rss_mib"].items()) + ".")
    return "\n".join(rows)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.thousand", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--replicas", type=int, default=1000)
    parser.add_argument("--rate", type=float, default=1000)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--warm", type=float, default=4)
    parser.add_argument("--tokens", type=int, default=16, help="of an answer")
    parser.add_argument("--prompt", type=int, default=64, help="tokens of a prompt, about")
    parser.add_argument("--speed", type=float, default=1.0, help="of the engines")
    parser.add_argument("--policy", default="queue_depth")
    parser.add_argument("--scrape", type=float, default=1.0, help="seconds between two readings of a replica")
    parser.add_argument("--metrics-bytes", type=int, default=0, help="least size of an engine's page (51000: vLLM's)")
    parser.add_argument("--kilocard", help="the program; default: of this Python")
    parser.add_argument("--unpinned", action="store_true", help="leave the programs on whatever core")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    o = parser.parse_args()
    found = measure(o)
    problems = wrong(found, o)
    print(json.dumps(found | {"problems": problems}, indent=1) if o.json else table(found, o))
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
