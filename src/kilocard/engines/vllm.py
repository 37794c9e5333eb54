"""vLLM. Flags from its arg_utils: booleans of its config classes have a --no- form, lists are nargs="+".

Checked against `vllm serve --help=all` of 0.32.0.
"""

from __future__ import annotations

from math import ceil

from kilocard.engines import command
from kilocard.engines.base import Capabilities, Group, Launch, MetricsPage, Placement
from kilocard.engines.flags import Lists, arguments, flags, whole
from kilocard.engines.hints import FAILURES, UVICORN, hint, reader
from kilocard.metrics.dialect import Dialect
from kilocard.spec.model import PoolSpec

#: names of all versions, newest first (vllm/v1/metrics/loggers.py; V0 and early V1 names after them)
DIALECT = Dialect(
    running=("vllm:num_requests_running",),
    waiting=("vllm:num_requests_waiting",),
    # gpu_cache_usage_perc alone up to 0.9.1, both in 0.9.2-0.10, gone by 0.12
    kv_usage=("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
    preemptions_total=("vllm:num_preemptions_total",),
    prompt_tokens_total=("vllm:prompt_tokens_total",),
    generation_tokens_total=("vllm:generation_tokens_total",),
    prefix_queries_total=("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"),
    prefix_hits_total=("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
    kv_config=("vllm:cache_config_info", "block_size", "num_gpu_blocks"),
    sum_over=("engine",),
    kv_tokens_label="kv_cache_size_tokens",
)

_OWNED = {
    "host": command.HOST,
    "port": command.PORT,
    "uds": command.HOST,
    "model": command.MODEL,
    "served-model-name": command.SERVED_NAME,
    "tensor-parallel-size": command.TENSOR,
    "tp": command.TENSOR,
    "pipeline-parallel-size": command.PIPELINE,
    "pp": command.PIPELINE,
}
#: booleans that have no --no- form: store_true outside the config classes
_STORE_TRUE = {
    "aggregate-engine-logging", "data-parallel-multi-port-external-lb", "disable-log-stats", "dpm", "grpc", "headless",
}  # fmt: skip
#: short spellings of vLLM's own
_SHORT = {
    "ac", "asc", "cc", "dc", "dcp", "dp", "dpa", "dpb", "dpe", "dph", "dpl", "dpm", "dpn", "dpp", "dpr", "ep", "n", "O",
    "pcp", "q", "r", "sc",
}  # fmt: skip

#: first version with --shutdown-timeout; without it vLLM aborts running requests on SIGTERM
_SHUTDOWN_SINCE = (0, 18)

_HINTS = (
    hint(
        r"Free memory on device\S*(?: cuda:\d+)? \(([\d.]+)/([\d.]+) GiB\).*utilization \(([\d.]+), ([\d.]+) GiB\)",
        "not enough free GPU memory: {0} of {1} GiB are free, {3} GiB are wanted (gpu-memory-utilization {2})",
    ),
    hint(
        r"max(?:imum)? seq(?:uence)? len\w* \((\d+)\) is larger than the maximum number of tokens .*KV cache \((\d+)\)",
        "KV cache too small: max-model-len is {0}, but only {1} tokens fit",
    ),
    hint(
        r"max seq len \((\d+)\), \(?([\d.]+) GiB KV cache is needed, .*available KV cache memory \(([\d.]+) GiB\)",
        "KV cache too small: max-model-len {0} needs {1} GiB, {2} GiB are there",
    ),
    hint(r"No available memory for the cache blocks", "no GPU memory is left for the KV cache"),
    hint(r"Loading .*checkpoint shards:\s+(\d+)%", "loading weights: {0}%"),
    hint(r"Starting to load model|Loading model from scratch|Loading weights from|Using model weights format",
         "loading weights"),
    hint(r"Model loading took ([\d.]+ Gi?B)|Loading model weights took ([\d.]+ Gi?B)|Loading weights took",
         "weights loaded {0}{1}"),
    hint(r"KV cache size: ([\d,]+) tokens", "KV cache: {0} tokens"),
    hint(r"GPU blocks: (\d+)", "KV cache: {0} blocks"),
    hint(r"Available KV cache memory: ([\d.]+ GiB)", "KV cache memory: {0}"),
    hint(r"Memory profiling|memory usage_post_profile", "measuring memory"),
    hint(r"Autotuning process starts", "tuning kernels"),
    hint(r"Graph capturing finished", "CUDA graphs captured"),
    hint(r"Capturing (?:the model for )?CUDA graphs?", "capturing CUDA graphs"),
    hint(r"torch\.compile|Compiling a graph|Dynamo bytecode transform", "compiling the model"),
    hint(r"init engine .* took ([\d.]+) s", "engine ready after {0} s"),
    hint(r"Starting vLLM (?:API )?server", "server starts"),
)  # fmt: skip


class Vllm:
    name = "vllm"
    capabilities = Capabilities(
        aborts_on_disconnect=True,
        stream_usage=True,
        prefix_cache=True,
        shutdown_flag="--shutdown-timeout",
        keep_alive=5.0,  # VLLM_HTTP_TIMEOUT_KEEP_ALIVE
        needs_gpu=True,
        launchable=True,
        lists_models=True,
        image="vllm/vllm-openai:v{version}",
        hub_cache="HF_HOME",
        group=Group(
            # docs/serving/parallelism_scaling.md, "Running vLLM with MultiProcessing"
            (
                "--distributed-executor-backend",
                "mp",
                "--nnodes",
                "{size}",
                "--node-rank",
                "{rank}",
                "--master-addr",
                "{leader}",
            ),
            ("--headless",),
            since=(0, 12),
            address_env="VLLM_HOST_IP",
        ),
        places_itself=(("distributed-executor-backend", "ray"), ("data-parallel-backend", "ray")),
        ray_serve=True,
        distribution="vllm",
    )

    def launch(self, pool: PoolSpec, place: Placement, served_names: tuple[str, ...]) -> Launch:
        names = (pool.served_model_name,) if pool.served_model_name else served_names or (pool.name,)
        argv = ["vllm", "serve", command.model_of(pool), "--host", place.host, "--port", str(place.port)]
        argv += ["--served-model-name", *names]
        if pool.gpus is not None:
            if pool.gpus.tensor > 1:
                argv += ["--tensor-parallel-size", str(pool.gpus.tensor)]
            if pool.gpus.pipeline > 1:
                argv += ["--pipeline-parallel-size", str(pool.gpus.pipeline)]
        version = command.version(pool)
        if version is not None and version >= _SHUTDOWN_SINCE and "shutdown-timeout" not in arguments(pool):
            argv += ["--shutdown-timeout", str(max(1, ceil(pool.drain.grace)))]
        argv += flags(pool, _OWNED, spell=_spell, negate=_negate, lists=Lists.SPACED)
        return Launch(command.program(pool, argv), dict(pool.env))

    def upstream_model(self, pool: PoolSpec, public_name: str) -> str:
        return pool.served_model_name or public_name

    def liveness_path(self, pool: PoolSpec) -> str:
        return "/health"

    def readiness_path(self, pool: PoolSpec) -> str:
        return "/v1/models"

    loading_hint = staticmethod(reader(_HINTS, FAILURES, UVICORN))

    def metrics_pages(self, pool: PoolSpec) -> tuple[MetricsPage, ...]:
        if arguments(pool).get("disable-log-stats") is True:
            return ()  # the page is then empty of load
        return (MetricsPage("/metrics", DIALECT),)

    def max_running(self, pool: PoolSpec) -> int | None:
        each = whole(pool, "max-num-seqs")
        return None if each is None else each * self._engines(pool)

    def gpu_count(self, pool: PoolSpec) -> int:
        return command.gpus(pool, usual=1) * self._engines(pool)

    def _engines(self, pool: PoolSpec) -> int:
        """Data-parallel engines behind one port: each has GPUs and a batch of its own."""
        return whole(pool, "data-parallel-size", "dp") or 1


def _spell(key: str) -> str:
    return f"-{key}" if key in _SHORT else f"--{key}"


def _negate(key: str) -> str | None:
    if key.startswith("no-"):
        return f"--{key.removeprefix('no-')}"
    return None if key in _STORE_TRUE else f"--no-{key}"
