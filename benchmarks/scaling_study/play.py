"""One run of the study: a workload, a cold start, a policy → numbers."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from benchmarks.scaling_study.peers import Hpa, Keda, in_flight
from kilocard.dispatch.config import PoolFacts
from kilocard.perf.builtin import A100_7B
from kilocard.scaling.scaler import Scaler
from kilocard.sim.autoscaling import Decides
from kilocard.sim.cluster import Cluster
from kilocard.sim.report import Slo, report
from kilocard.sim.scenario import PoolModel, Scenario
from kilocard.spec.model import HoldSpec, ModelSpec, PoolSpec, ReplicaRange
from kilocard.spec.scaling import ObjectiveSpec, ScalingSpec
from kilocard.workload.request import WorkloadRequest

#: fewest and most replicas, and how many there are when the hour begins
LEAST, MOST = 1, 24
BEGIN = {"code": 3, "conv": 4, "sinus": 4, "edge": 3}
#: seconds to the first token: what `target` holds, and what is counted
TTFT_S = 2.0
#: a request waits as long as it has to, so that no policy looks good by turning requests away
PATIENT = HoldSpec(max=1_000_000, timeout=3600.0)


def kilocard(policy: str) -> Callable[[], Decides]:
    """With the defaults of the cluster file."""
    spec = ScalingSpec(policy=policy, slo=ObjectiveSpec(ttft=TTFT_S))
    return partial(Scaler, PoolSpec("p", "vllm", replicas=ReplicaRange(LEAST, MOST), scaling=spec))


#: name → what makes its decider
POLICIES: dict[str, Callable[[], Decides]] = {
    "target": kilocard("target"),
    "threshold": kilocard("threshold"),
    "HPA, 5 waiting": partial(Hpa, 5.0, LEAST, MOST),
    "HPA, 20 waiting": partial(Hpa, 20.0, LEAST, MOST),
    "HPA, 8 in flight": partial(Hpa, 8.0, LEAST, MOST, in_flight),
    "HPA, 16 in flight": partial(Hpa, 16.0, LEAST, MOST, in_flight),
    "KEDA, 5 waiting": partial(Keda, 5.0, LEAST, MOST),
    "KEDA, 20 waiting": partial(Keda, 20.0, LEAST, MOST),
    "KEDA, 8 in flight": partial(Keda, 8.0, LEAST, MOST, in_flight),
    "KEDA, 16 in flight": partial(Keda, 16.0, LEAST, MOST, in_flight),
}


def play(workload: str, requests: Sequence[WorkloadRequest], cold_s: float, policy: str) -> dict[str, Any]:
    """JSON data."""
    pool = PoolModel(
        "p", A100_7B, BEGIN[workload], PoolFacts(max_running=A100_7B.max_num_seqs), load_s=cold_s,
        scaler=POLICIES[policy], grace_s=600.0,
    )  # fmt: skip
    cluster = Cluster(Scenario({"m": ModelSpec("m", {"p": 1}, hold=PATIENT)}, (pool,)), requests)
    gc.disable()
    try:
        cluster.play()
    finally:
        gc.enable()
    document = report(cluster, Slo(TTFT_S, 1e9))
    its = document["scaling"]["pools"]["p"]
    ttft = document["ttft_s"]
    return {
        "workload": workload, "cold_start_s": cold_s, "policy": policy, "requests": len(requests),
        "failed": document["failed"] + document["rejected"] + document["unfinished"],
        "within_slo": round(document["goodput_share"], 4), "ttft_p50_s": round(ttft["p50"], 3),
        "ttft_p95_s": round(ttft["p95"], 3), "ttft_p99_s": round(ttft["p99"], 3),
        "gpu_hours": round(document["gpu_hours"], 3), "replicas_mean": round(its["mean"], 2),
        "replicas_most": its["most"], "grew": its["grew"], "shrank": its["shrank"], "turns": its["turns"],
    }  # fmt: skip
