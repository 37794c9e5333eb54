"""Run by the Python of vidur's own environment, so it imports nothing of ours: plays a scenario file with vidur.

vidur's wheel has no profiles: its predictor downloads measured kernels from a model hub when it starts. In its place
stands the step time of the scenario's profile, so that both simulators compute with the same engine speed, and vidur's
scheduler, events and requests are what is compared. All that vidur can leave out (metrics, plots, traces) is off.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any, ClassVar

from vidur import simulator as main
from vidur._native.entities import ExecutionTime
from vidur.config import (
    CacheConfig,
    ClusterConfig,
    MetricsConfig,
    ReplicaConfig,
    SimulationConfig,
)
from vidur.config.config import (
    RandomForrestExecutionTimePredictorConfig,
    RoundRobinGlobalSchedulerConfig,
    SarathiSchedulerConfig,
    TraceRequestGeneratorConfig,
)
from vidur.execution_time_predictor import ExecutionTimePredictorRegistry
from vidur.request_generator.trace_replay_request_generator import TraceReplayRequestGenerator
from vidur.types import ExecutionTimePredictorType
from vidur.utils.random import set_seeds

MS = 1e3


class OfProfile:
    """The scenario's step time, as one layer of vidur's."""

    profile: ClassVar[dict[str, float]] = {}

    def __init__(self, **_: Any) -> None:
        pass

    def get_execution_time(self, batch: Any, pipeline_stage: int) -> Any:
        p = self.profile
        prefill = decode = read = 0
        for new, kv in zip(batch.num_q_tokens, batch.num_kv_tokens):  # noqa: B905  # as vidur does
            read += kv
            if new == 1:
                decode += 1
            else:
                prefill += new
        seconds = (
            p["step_fixed_s"] + p["prefill_token_s"] * prefill + p["decode_seq_s"] * decode + p["kv_token_s"] * read
        )
        return ExecutionTime(1, seconds * MS, *[0.0] * 13)


def play(scenario: dict[str, Any]) -> dict[str, Any]:
    profile = OfProfile.profile = scenario["profile"]
    registry = ExecutionTimePredictorRegistry
    registry.unregister(ExecutionTimePredictorType.RANDOM_FORREST)
    registry.register(ExecutionTimePredictorType.RANDOM_FORREST, OfProfile)
    requests: list[Any] = []
    made = TraceReplayRequestGenerator.generate_requests

    def keep(self: Any) -> list[Any]:
        requests[:] = made(self)
        return requests

    TraceReplayRequestGenerator.generate_requests = keep
    most = int(profile["max_model_len"])
    config = SimulationConfig(
        log_level="error",
        cluster_config=ClusterConfig(
            num_replicas=scenario["replicas"],
            replica_config=ReplicaConfig(num_pipeline_stages=1, tensor_parallel_size=1),
            cache_config=CacheConfig(
                block_size=int(profile["block_size"]),
                num_blocks=int(profile["kv_tokens"] // profile["block_size"]) - 1,
                watermark_blocks_fraction=0.0,
            ),
            global_scheduler_config=RoundRobinGlobalSchedulerConfig(),
            replica_scheduler_config=SarathiSchedulerConfig(
                batch_size_cap=int(profile["max_num_seqs"]), chunk_size=int(profile["max_num_batched_tokens"])
            ),
        ),
        request_generator_config=TraceRequestGeneratorConfig(
            trace_file=scenario["trace"], date=scenario["date"],
            prefill_scale_factor=1.0, decode_scale_factor=1.0, time_scale_factor=1.0,
            max_tokens=most,
        ),
        execution_time_predictor_config=RandomForrestExecutionTimePredictorConfig(),
        metrics_config=MetricsConfig(
            write_metrics=False, enable_chrome_trace=False, store_plots=False, store_request_metrics=False,
            store_batch_metrics=False, store_utilization_metrics=False, output_dir=scenario["out"],
        ),
    )  # fmt: skip
    set_seeds(config.seed)
    simulation = main.Simulator(config)
    cpu, wall = time.process_time(), time.perf_counter()
    simulation.run()
    return {
        "cpu_s": time.process_time() - cpu,
        "wall_s": time.perf_counter() - wall,
        "ttft_s": [request.prefill_completed_at - request.arrived_at for request in requests],
        "e2e_s": [request.completed_at - request.arrived_at for request in requests],
        "restarts": sum(request.num_restarts for request in requests),
    }


if __name__ == "__main__":
    with open(sys.argv[1]) as file:
        found = play(json.load(file))
    print("JSON " + json.dumps(found))
