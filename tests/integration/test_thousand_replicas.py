"""A hundred live emulated engines behind one real gateway: a small `python -m benchmarks.thousand`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
REPLICAS = 100


def test_a_hundred_live_replicas_are_read_routed_to_and_shown() -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "benchmarks.thousand", "--replicas", str(REPLICAS), "--rate", "40"),
            *("--seconds", "4", "--warm", "1", "--tokens", "8", "--speed", "4", "--json"),
        ],
        capture_output=True, text=True, timeout=180, check=False, cwd=ROOT,
    )  # fmt: skip
    # Exit code 1 may also say that this machine was too busy to send in time, which is no fault of the gateway's.
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    for way in ("direct", "gateway"):
        run = found[way]
        assert run["requests"] > 100
        assert {kind: run[kind] for kind in ("bad_status", "incomplete", "cut", "unfinished")} == dict.fromkeys(
            ("bad_status", "incomplete", "cut", "unfinished"), 0
        )
    view = found["fleet_view"]
    assert view["states"] == {"ready": REPLICAS}
    assert view["age_s"]["p50"] < 5.0  # read once a second; this machine may be busy, but nothing is forgotten
    # queue_depth: the requests under way spread over the fleet
    assert max(map(int, view["in_flight"])) <= 5
    assert found["decision_s"]["p50"] is not None  # some were timed
    lines = view["status"].splitlines()
    assert any(line.split()[:3] == ["replicas", "100", "100"] for line in lines), view["status"]
    assert lines[-1] == "80 more: 80 ready. --all shows them, --pool NAME those of one pool."
