"""Runs what is missing of the study, and writes its page.

python -m benchmarks.scaling_study --traces FOLDER              # about ten minutes of one core
python -m benchmarks.scaling_study --traces FOLDER --seconds 60 # stop after the run that passes a minute; go on later
python -m benchmarks.scaling_study --page                       # only the page, from the results
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from time import monotonic
from typing import Any

from benchmarks.scaling_study.page import page
from benchmarks.scaling_study.play import POLICIES, play
from benchmarks.scaling_study.workloads import traffic

HERE = Path(__file__).parent
RESULTS = HERE / "results.json"
PAGE = HERE.parents[1] / "docs" / "scaling-study.md"
#: workload → cold starts in seconds
RUNS = {"code": (30.0, 180.0, 600.0), "conv": (30.0, 180.0, 600.0), "sinus": (60.0,), "edge": (60.0,)}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling_study", description=__doc__)
    parser.add_argument("--traces", type=Path, help="folder with the two Azure traces")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no run after so long")
    parser.add_argument("--policy", action="append", help="only this one; may be repeated")
    parser.add_argument("--again", action="store_true", help="run what is in the results too")
    parser.add_argument("--page", action="store_true", help="run nothing")
    o = parser.parse_args()
    if not o.page and o.traces is None:
        parser.error("--traces FOLDER: the Azure traces are not part of the repository")
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    if not o.page:
        results = run(o, results)
    wanted = [(workload, cold, policy) for workload in RUNS for cold in RUNS[workload] for policy in POLICIES]
    found = {_key(each): each for each in results}
    if missing := [key for key in wanted if key not in found]:
        print(f"{len(missing)} of {len(wanted)} runs are missing: call it again", file=sys.stderr)
        return 1
    PAGE.write_text(page([found[key] for key in wanted]), encoding="utf-8")
    print(f"{PAGE} written")
    return 0


def _key(result: dict[str, Any]) -> tuple[str, float, str]:
    return result["workload"], result["cold_start_s"], result["policy"]


def run(o: argparse.Namespace, results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What is missing, workload by workload; each result is kept as soon as it is there."""
    begun = monotonic()
    again = o.policy or list(POLICIES)
    if o.again:
        results = [each for each in results if each["policy"] not in again]
    have = {_key(each) for each in results}
    for workload, colds in RUNS.items():
        todo = [(cold, policy) for cold in colds for policy in again if (workload, cold, policy) not in have]
        requests = traffic(workload, o.traces) if todo else []
        for cold, policy in todo:
            if monotonic() - begun > o.seconds:
                return results
            started = monotonic()
            result = play(workload, requests, cold, policy)
            results.append(result)
            RESULTS.write_text(json.dumps(results, indent=1) + "\n")
            print(
                f"{workload:5} {cold:4.0f} s {policy:16} {result['within_slo']:6.1%} {result['gpu_hours']:6.2f} GPU h "
                f"{result['turns']:3} turns  ({monotonic() - started:.0f} s)",
                flush=True,
            )
    return results


if __name__ == "__main__":
    sys.exit(main())
