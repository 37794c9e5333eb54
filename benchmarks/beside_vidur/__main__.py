"""`python -m benchmarks.beside_vidur`: this simulator and vidur's, on the same arrivals, lengths and step times.

    python -m benchmarks.beside_vidur                              # 1 and 10 replicas
    python -m benchmarks.beside_vidur --requests 20000 --replicas 100 --rate 4

vidur comes from PyPI into an environment of its own (1.2 GB: it brings streamlit and wandb along) under
~/.cache/kilocard-benchmarks. Its wheel has no profiles; they come from a model hub. So both get the step time of one of
our profiles (see peer.py). vidur's scheduler is `sarathi`, which is what vLLM V1 does: decodes first, chunks of prompts
with what is left of the budget. Both spread requests by round robin, and all waiting is in the engines. Processor time
of the simulation itself, without start, workload and report; vidur keeps no metrics.

Exit 1: one of them did not end all requests.
"""

from __future__ import annotations

import argparse
import csv
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.gateway.proxies.base import Unavailable, venv
from kilocard.core.statistics import of_sorted
from kilocard.dispatch.config import PoolFacts
from kilocard.perf.builtin import builtin
from kilocard.perf.profile import Profile
from kilocard.sim.cluster import Cluster
from kilocard.sim.collector import COMPLETED
from kilocard.sim.scenario import PoolModel, Scenario, Signals
from kilocard.spec.model import ModelSpec, OverheatSpec
from kilocard.workload.arrivals import Poisson
from kilocard.workload.generate import generate
from kilocard.workload.mixes import read_mix
from kilocard.workload.request import WorkloadRequest

VIDUR = "vidur==0.0.26"
DATE = "2026-01-01"
#: vidur has no gateway: requests wait in the engines, however many
NEVER_HOT = OverheatSpec(waiting=1e9, kv_usage=2.0)


def ours(work: Sequence[WorkloadRequest], profile: Profile, replicas: int) -> dict[str, Any]:
    scenario = Scenario(
        {"m": ModelSpec("m", {"p": 1}, "round_robin", overheat=NEVER_HOT)},
        (PoolModel("p", profile, replicas, PoolFacts(), prefix_cache=False),),
        signals=Signals(hop_s=0.0),
        sample_s=max(1.0, work[-1].at_s / 240),
    )
    cluster = Cluster(scenario, work)
    gc.disable()  # as kilocard simulate does
    cpu, wall = time.process_time(), time.perf_counter()
    results = cluster.play()
    spent = {"cpu_s": time.process_time() - cpu, "wall_s": time.perf_counter() - wall}
    gc.enable()
    done = [place for place in range(len(work)) if results.ends[place] == COMPLETED]
    return spent | {
        "ttft_s": [results.first_s[place] - results.arrived_s[place] for place in done],
        "e2e_s": [results.end_s[place] - results.arrived_s[place] for place in done],
    }


def theirs(
    python: Path, work: Sequence[WorkloadRequest], profile: Profile, replicas: int, folder: Path
) -> dict[str, Any]:
    trace = folder / "trace.csv"
    with trace.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("Time", "PromptTokenCount", "CompletionTokenCount", "Date"))
        rows.writerows((repr(each.at_s), each.input_tokens, each.output_tokens, DATE) for each in work)
    scenario = folder / "scenario.json"
    given = {key: value for key, value in asdict(profile).items() if isinstance(value, int | float)}
    scenario.write_text(
        json.dumps({"profile": given, "replicas": replicas, "trace": str(trace), "out": str(folder), "date": DATE})
    )
    done = subprocess.run(
        [str(python), str(Path(__file__).with_name("peer.py")), str(scenario)],
        capture_output=True, text=True, check=False, cwd=folder,
        env={**os.environ, "PYTHONPATH": "", "WANDB_MODE": "disabled"},
    )  # fmt: skip
    for line in done.stdout.splitlines():
        if line.startswith("JSON "):
            return dict(json.loads(line[5:]))
    raise Unavailable(f"vidur gave no result:\n{done.stderr[-1500:]}")


def compare(o: argparse.Namespace, python: Path, requests: int, replicas: int) -> dict[str, Any]:
    profile = builtin(o.profile)
    work = list(generate(Poisson(o.rate * replicas), read_mix(o.mix), Random(o.seed), requests=requests))
    with tempfile.TemporaryDirectory(prefix="kilocard-vidur-") as name:
        found = {
            "kilocard": ours(work, profile, replicas),
            "vidur": theirs(python, work, profile, replicas, Path(name)),
        }
    for each in found.values():
        ttft, e2e = each.pop("ttft_s"), each.pop("e2e_s")
        tpot = sorted(
            (whole - first) / (request.output_tokens - 1)
            for whole, first, request in zip(e2e, ttft, work, strict=False)
            if request.output_tokens > 1
        )
        each["completed"] = len(e2e)
        each["us_per_request"] = each["cpu_s"] / requests * 1e6
        for key, values in (("ttft_s", sorted(ttft)), ("tpot_s", tpot), ("e2e_s", sorted(e2e))):
            each[key] = {f"p{share}": of_sorted(values, share / 100) for share in (50, 95, 99)}
    return {"requests": requests, "replicas": replicas, "virtual_s": work[-1].at_s, "by": found}


def table(points: Sequence[dict[str, Any]]) -> str:
    rows = [
        "| requests | replicas | simulator | wall s | CPU s | µs a request | TTFT p50 / p95 / p99 s "
        "| TPOT p50 / p95 ms | e2e p50 / p95 s |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for point in points:
        for name, each in point["by"].items():
            ttft, tpot, e2e = each["ttft_s"], each["tpot_s"], each["e2e_s"]
            rows.append(
                f"| {point['requests']:,} | {point['replicas']} | {name} | {each['wall_s']:.1f} | {each['cpu_s']:.1f} "
                f"| {each['us_per_request']:,.0f} | {ttft['p50']:.3f} / {ttft['p95']:.3f} / {ttft['p99']:.3f} "
                f"| {tpot['p50'] * 1e3:.2f} / {tpot['p95'] * 1e3:.2f} | {e2e['p50']:.2f} / {e2e['p95']:.2f} |"
            )
    return "\n".join(rows)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.beside_vidur", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--requests", type=int, help="default: 2,000 a replica")
    parser.add_argument("--replicas", type=int, nargs="+", default=[1, 10])
    parser.add_argument("--rate", type=float, default=4.0, help="requests/s and replica")
    parser.add_argument("--mix", default="mean=512,p99=2000,max=8000/mean=200,p99=700,max=1000")
    parser.add_argument("--profile", default="a100-7b")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    default = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "kilocard-benchmarks"
    parser.add_argument("--cache", type=Path, default=default)
    o = parser.parse_args()
    python = venv(o.cache, "vidur", VIDUR) / "python"
    points = [compare(o, python, o.requests or 2000 * replicas, replicas) for replicas in o.replicas]
    print(json.dumps(points, indent=1) if o.json else table(points))
    return int(any(each["completed"] != point["requests"] for point in points for each in point["by"].values()))


if __name__ == "__main__":
    sys.exit(main())
