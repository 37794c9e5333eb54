"""A client that does not get the processor says so."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.bench_client.timed_server import TimedServer

ROOT = Path(__file__).parent.parent.parent.parent

#: sees its input end with the test
SPINNER = "import select, sys\nwhile not select.select([0], [], [], 0)[0]:\n    for _ in range(100000): pass"

CLIENT = """
import json, os, sys
from dataclasses import asdict
from benchmarks.bench_client.timed_server import timed_body
from kilocard.bench.ask import Ask, Target
from kilocard.bench.client import Client
from kilocard.bench.drive import drive_closed

os.nice(int(sys.argv[2]))
body = timed_body("x", chunks=10, first_s=0.02, gap_s=0.01)
with Client(Target(sys.argv[1])) as client:
    driven = drive_closed(client, lambda: Ask(body, 1, 10), 20, seconds=2.0)
print(json.dumps({**asdict(driven.health), "requests": len(driven.records)}))
"""


@contextmanager
def spinners(core: int, count: int) -> Iterator[None]:
    running = [
        subprocess.Popen(["taskset", "-c", str(core), sys.executable, "-I", "-S", "-c", SPINNER], stdin=subprocess.PIPE)
        for _ in range(count)
    ]
    try:
        yield
    finally:
        for process in running:
            assert process.stdin is not None
            process.stdin.close()
        for process in running:
            process.wait(10)


def measure(core: int, niceness: int) -> dict[str, Any]:
    with TimedServer() as server:
        done = subprocess.run(
            ["taskset", "-c", str(core), sys.executable, "-c", CLIENT, server.url, str(niceness)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_a_client_starved_of_its_processor_says_so() -> None:
    core = min(os.sched_getaffinity(0))
    with spinners(core, 2):
        health = measure(core, 19)
    assert "waited for a processor" in (health["limited"] or ""), health
    assert health["starved_share"] > 0.5
    assert health["late_mean_s"] > 0.001 or health["blur_p999_s"] > 0.001
    assert health["requests"] > 0
