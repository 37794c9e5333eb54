"""`kilocard bench`, as a user runs it."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.bench_truth.load import Load
from benchmarks.bench_truth.measured import Measured, turnaround
from benchmarks.bench_truth.server import ask


def run(url: str, load: Load, folder: Path, body: Mapping[str, Any]) -> Measured:
    """`body`: fields that it sends more than its own, or instead of them."""
    argv = [sys.executable, "-m", "kilocard", "bench", url, "--endpoint", "completions", "--no-single"]
    argv += ["--sweep", str(load.concurrency), "--requests", str(load.requests), "--seed", str(load.seed)]
    output = f"{load.shortest}-{load.longest}" if load.spread else str(load.output)
    argv += ["--input", str(load.input), "--output", output, "--out", str(folder / "kilocard")]
    argv += ["--body", json.dumps(body)]
    done = ask(argv, {})
    results = folder / "kilocard" / "results.json"
    if not results.exists():
        raise SystemExit(f"kilocard bench: exit code {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    for line in done.stderr.splitlines():
        if "limit" in line:
            print(f"    {line}", file=sys.stderr)
    (point,) = json.loads(results.read_text())["points"]
    return Measured(
        "kilocard bench",
        point["completed"],
        point["output_tokens_per_s"],
        point["ttft_s"]["mean"],
        point["ttft_s"]["p50"],
        point["tpot_s"]["mean"],
        point["e2e_s"]["mean"],
        point["input_tokens"] / point["completed"],
        point["output_tokens"] / point["completed"],
        _turnaround(folder / "kilocard" / "requests.jsonl"),
        point["output_tokens_per_s"],  # it counts no longer than the slots are full
    )


def _turnaround(log: Path) -> float:
    rows = [row for row in map(json.loads, log.read_text().splitlines()[1:]) if row["point"] == 0]
    return turnaround([row["intended_s"] for row in rows], [row["last_s"] for row in rows if "last_s" in row])


def sweep(url: str, folder: Path) -> dict[str, Any]:
    """results.json of a sweep that finds its own loads."""
    argv = [sys.executable, "-m", "kilocard", "bench", url, "--input", "64", "--output", "64", "--no-single"]
    argv += ["--duration", "20s", "--max-concurrency", "64", "--out", str(folder)]
    done = ask(argv, {})
    results = folder / "results.json"
    if not results.exists():
        raise SystemExit(f"kilocard bench: exit code {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(results.read_text())
    return found
