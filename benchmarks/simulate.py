"""`python -m benchmarks.simulate`: how fast the simulator is, and how that grows with requests and with replicas.

The same load per replica each time, so a cluster of ten times the size has ten times the requests a second. CPU time
of a process for each point, not the wall clock: others may use the machine. Run it alone all the same, or caches are
shared. Of whichever kilocard this Python has: plain, or compiled (scripts/install-compiled).

    python -m benchmarks.simulate                         # both series, some 4 minutes in plain Python
    python -m benchmarks.simulate --requests 1000000 --replicas 1000      # one point
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import subprocess
import sys
from random import Random
from time import process_time
from typing import Any

from kilocard.dispatch.config import PoolFacts
from kilocard.perf.builtin import builtin
from kilocard.sim.cluster import Cluster
from kilocard.sim.report import Slo, report
from kilocard.sim.scenario import PoolModel, Scenario
from kilocard.spec.model import ModelSpec
from kilocard.workload.arrivals import Poisson
from kilocard.workload.generate import generate
from kilocard.workload.mixes import read_mix

#: (requests, replicas): more requests for the same replicas, then more replicas for the same 25 s of virtual time
GROWTH = (
    (10_000, 100), (100_000, 100), (100_000, 1000), (300_000, 1000), (1_000_000, 1000),
    (1_000, 10), (10_000, 100), (100_000, 1000), (400_000, 4000),
)  # fmt: skip


def measure(o: argparse.Namespace, requests: int, replicas: int) -> dict[str, Any]:
    profile = builtin(o.profile)
    arrivals = Poisson(o.rate * replicas)
    work = list(generate(arrivals, read_mix(o.mix), Random(o.seed), requests=requests))
    scenario = Scenario(
        {"m": ModelSpec("m", {"p": 1}, o.policy)},
        (PoolModel("p", profile, replicas, PoolFacts(max_running=profile.max_num_seqs)),),
        gateways=o.gateways,
        sample_s=max(1.0, work[-1].at_s / 240),
    )
    begun = process_time()
    cluster = Cluster(scenario, work)
    gc.disable()  # as kilocard simulate does
    cluster.play()
    gc.enable()
    played = process_time()
    found = report(cluster, Slo(2.0, 0.1))
    reported = process_time()
    return {
        "requests": requests,
        "replicas": replicas,
        "cpu_s": played - begun,
        "us_per_request": (played - begun) / requests * 1e6,
        "report_s": reported - played,
        "virtual_s": found["simulated_s"],
        "events": cluster.kernel.events,
        "state": found["state"],
        "completed": found["completed"],
        "ttft_p95_s": found["ttft_s"]["p95"],
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def _apart(requests: int, replicas: int) -> dict[str, Any]:
    """In a process of its own, with this one's options: memory is each point's."""
    argv = [*sys.argv[1:], "--requests", str(requests), "--replicas", str(replicas), "--json"]
    done = subprocess.run([sys.executable, "-m", "benchmarks.simulate", *argv], stdout=subprocess.PIPE, check=True)
    return dict(json.loads(done.stdout)[0])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.simulate", description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)  # fmt: skip
    parser.add_argument("--requests", type=int)
    parser.add_argument("--replicas", type=int)
    parser.add_argument(
        "--rate", type=float, default=4.0, help="requests/s and replica; the default is 80 %% of what it can"
    )
    parser.add_argument("--mix", default="mean=512,p99=2000,max=8000/mean=200,p99=700,max=1000")
    parser.add_argument("--profile", default="a100-7b")
    parser.add_argument("--policy", default="queue_depth")
    parser.add_argument("--gateways", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    o = parser.parse_args()
    one = bool(o.requests or o.replicas)
    found = []
    for requests, replicas in ((o.requests or 100_000, o.replicas or 100),) if one else GROWTH:
        point = measure(o, requests, replicas) if one else _apart(requests, replicas)
        found.append(point)
        if not o.json:
            print(
                f"{requests:>9,} requests  {replicas:>5,} replicas: {point['cpu_s']:7.1f} s, "
                f"{point['us_per_request']:6.1f} us each, {point['events']:,} events, "
                f"{point['virtual_s']:.0f} s virtual, "
                f"{point['peak_mib']:.0f} MiB, {point['state']}, TTFT p95 {point['ttft_p95_s']:.3f} s",
                flush=True,
            )
    if o.json:
        print(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
