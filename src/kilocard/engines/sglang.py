"""SGLang. Flags from its server_args: booleans are store_true (False is given by leaving them out)."""

from __future__ import annotations

from kilocard.engines import command
from kilocard.engines.base import Capabilities, Group, Launch, MetricsPage, Placement
from kilocard.engines.flags import arguments, flags, whole
from kilocard.engines.hints import FAILURES, UVICORN, hint, reader
from kilocard.metrics.dialect import Dialect
from kilocard.spec.model import PoolSpec

#: python/sglang/srt/observability/metrics_collector.py
DIALECT = Dialect(
    running=("sglang:num_running_reqs",),
    waiting=("sglang:num_queue_reqs",),
    kv_usage=("sglang:token_usage",),
    preemptions_total=("sglang:num_retracted_requests_total",),
    prompt_tokens_total=("sglang:prompt_tokens_total",),
    generation_tokens_total=("sglang:generation_tokens_total",),
    # all prompt tokens ask the prefix cache; cached_tokens are those that it had
    prefix_queries_total=("sglang:prompt_tokens_total",),
    prefix_hits_total=("sglang:cached_tokens_total",),
    kv_config=("sglang:cache_config_info", "page_size", "num_pages"),
    sum_over=("dp_rank",),
    copies_over=("tp_rank", "pp_rank", "moe_ep_rank"),
    aggregate=(("priority", ""),),
)

_OWNED = {
    "host": command.HOST,
    "port": command.PORT,
    "model-path": command.MODEL,
    "model": command.MODEL,
    "served-model-name": command.SERVED_NAME,
    "tp-size": command.TENSOR,
    "tensor-parallel-size": command.TENSOR,
    "tp": command.TENSOR,
    "pp-size": command.PIPELINE,
    "pipeline-parallel-size": command.PIPELINE,
    "pp": command.PIPELINE,
}

_HINTS = (
    hint(r"Not enough memory\. Please try to increase --mem-fraction-static",
         "not enough GPU memory for weights and KV cache: raise mem-fraction-static or use more GPUs"),
    hint(r"Loading .*checkpoint shards:\s+(\d+)%", "loading weights: {0}%"),
    hint(r"Load weight begin", "loading weights"),
    hint(r"Load weight end\.", "weights loaded"),
    hint(r"KV Cache is allocated.*#tokens: (\d+)", "KV cache: {0} tokens"),
    hint(r"max_total_num_tokens=(\d+)", "KV cache: {0} tokens"),
    hint(r"Capture \w+ graph begin", "capturing CUDA graphs"),
    hint(r"Capture \w+ graph end", "CUDA graphs captured"),
    hint(r"fired up and ready to roll", "ready"),
)  # fmt: skip


class Sglang:
    name = "sglang"
    capabilities = Capabilities(
        aborts_on_disconnect=True,
        stream_usage=True,
        prefix_cache=True,
        shutdown_flag=None,  # on SIGTERM it lets running requests finish by itself
        keep_alive=5.0,
        needs_gpu=True,
        launchable=True,
        lists_models=True,
        memory_budget="static",
        finishes_on_term=True,
        image="lmsysorg/sglang:v{version}",
        hub_cache="HF_HOME",
        group=Group(("--nnodes", "{size}", "--node-rank", "{rank}", "--dist-init-addr", "{leader}:20000")),
        distribution="sglang",
    )

    def launch(self, pool: PoolSpec, place: Placement, served_names: tuple[str, ...]) -> Launch:
        argv = ["python3", "-m", "sglang.launch_server", "--model-path", command.model_of(pool)]
        argv += ["--host", place.host, "--port", str(place.port)]
        argv += ["--served-model-name", command.one_name(pool, served_names)]
        if pool.gpus is not None:
            if pool.gpus.tensor > 1:
                argv += ["--tp-size", str(pool.gpus.tensor)]
            if pool.gpus.pipeline > 1:
                argv += ["--pp-size", str(pool.gpus.pipeline)]
        if "enable-metrics" not in arguments(pool):
            argv.append("--enable-metrics")
        argv += flags(pool, _OWNED)
        return Launch(command.program(pool, argv), dict(pool.env))

    def upstream_model(self, pool: PoolSpec, public_name: str) -> str:
        return pool.served_model_name or public_name

    def liveness_path(self, pool: PoolSpec) -> str:
        return "/health"

    def readiness_path(self, pool: PoolSpec) -> str:
        # 503 until the warm-up request is through; /v1/models answers before that, /health_generate costs tokens
        return "/health"

    loading_hint = staticmethod(reader(_HINTS, FAILURES, UVICORN))

    def metrics_pages(self, pool: PoolSpec) -> tuple[MetricsPage, ...]:
        if arguments(pool).get("enable-metrics") is False:
            return ()
        return (MetricsPage("/metrics", DIALECT),)

    def max_running(self, pool: PoolSpec) -> int | None:
        return whole(pool, "max-running-requests")

    def gpu_count(self, pool: PoolSpec) -> int:
        count = command.gpus(pool, usual=1)
        if arguments(pool).get("enable-dp-attention") is True:
            return count  # its ranks share the tensor-parallel group's GPUs
        return count * (whole(pool, "dp-size", "data-parallel-size", "dp") or 1)
