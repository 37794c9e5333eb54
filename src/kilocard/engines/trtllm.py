"""TensorRT-LLM's trtllm-serve. Its flags (tensorrt_llm/commands/serve.py) are written with underscores.

Its load gauges appear only with `return_perf_metrics` and `enable_iter_perf_stats` in the YAML file that the
argument `extra_llm_api_options` (newer: `config`) names; without them in-flight counting is the signal.
"""

from __future__ import annotations

from kilocard.engines import command
from kilocard.engines.base import Capabilities, Launch, MetricsPage, Placement
from kilocard.engines.flags import flags, whole
from kilocard.engines.hints import FAILURES, UVICORN, hint, reader
from kilocard.metrics.dialect import Dialect
from kilocard.spec.model import PoolSpec


def _names(prefixes: tuple[str, ...], name: str) -> tuple[str, ...]:
    return tuple(prefix + name for prefix in prefixes)


def _dialect(*prefixes: str) -> Dialect:
    """tensorrt_llm/metrics/collector.py; the gauges came with 1.3.0rc12, before that the page has histograms only."""
    return Dialect(
        running=_names(prefixes, "num_requests_running"),
        waiting=_names(prefixes, "num_requests_waiting"),
        kv_usage=_names(prefixes, "kv_cache_utilization"),
        prompt_tokens_total=_names(prefixes, "prompt_tokens_total"),
        generation_tokens_total=_names(prefixes, "generation_tokens_total"),
    )


#: names without prefix (1.0-1.1) could be anyone's: accepted only where the pool says that it is TensorRT-LLM
DIALECT = _dialect("trtllm_", "")
#: for replicas of an unknown engine
PREFIXED = _dialect("trtllm_")

#: not /metrics: that is JSON which is drained on reading, so that two pollers steal from each other
METRICS_PATH = "/prometheus/metrics"

_OWNED = {
    "host": command.HOST,
    "port": command.PORT,
    "model": command.MODEL,
    "served-model-name": command.SERVED_NAME,
    "tp-size": command.TENSOR,
    "tensor-parallel-size": command.TENSOR,
    "pp-size": command.PIPELINE,
    "pipeline-parallel-size": command.PIPELINE,
}

_HINTS = (
    hint(r"Executor creation failed due to insufficient GPU memory", "not enough free GPU memory"),
    hint(r"Loading (?:weights|safetensors weights)\D*(\d+)%", "loading weights: {0}%"),
    hint(r"Loading weights|Start loading", "loading weights"),
    hint(r"Max KV cache blocks|Allocated ([\d.]+ GiB) for max tokens in paged KV cache", "KV cache: {0}"),
    hint(r"Running autotuner|\[Autotuner\]", "tuning kernels"),
)


class TensorRtLlm:
    name = "trtllm"
    capabilities = Capabilities(
        aborts_on_disconnect=True,
        stream_usage=True,
        prefix_cache=True,
        shutdown_flag=None,
        keep_alive=5.0,
        needs_gpu=True,
        launchable=True,
        lists_models=True,
        memory_budget="of_free",
        hub_cache="HF_HOME",
        distribution="tensorrt-llm",
    )

    def launch(self, pool: PoolSpec, place: Placement, served_names: tuple[str, ...]) -> Launch:
        argv = ["trtllm-serve", command.model_of(pool), "--host", place.host, "--port", str(place.port)]
        if pool.served_model_name:
            argv += ["--served_model_name", pool.served_model_name]  # only newer versions know it
        if pool.gpus is not None:
            if pool.gpus.tensor > 1:
                argv += ["--tp_size", str(pool.gpus.tensor)]
            if pool.gpus.pipeline > 1:
                argv += ["--pp_size", str(pool.gpus.pipeline)]
        argv += flags(pool, _OWNED, spell=lambda key: "--" + key.replace("-", "_"))
        return Launch(command.program(pool, argv), dict(pool.env))

    def upstream_model(self, pool: PoolSpec, public_name: str) -> str:
        """It knows a hub model by its name and a folder by the folder's last part."""
        if pool.served_model_name or not pool.model:
            return pool.served_model_name or public_name
        is_folder = pool.model.startswith(("/", "./", "../", "~"))
        return pool.model.rstrip("/").rpartition("/")[2] if is_folder else pool.model

    def liveness_path(self, pool: PoolSpec) -> str:
        return "/health"

    def readiness_path(self, pool: PoolSpec) -> str:
        return "/health"

    loading_hint = staticmethod(reader(_HINTS, FAILURES, UVICORN))

    def metrics_pages(self, pool: PoolSpec) -> tuple[MetricsPage, ...]:
        return (MetricsPage(METRICS_PATH, DIALECT),)

    def max_running(self, pool: PoolSpec) -> int | None:
        return whole(pool, "max-batch-size")

    def gpu_count(self, pool: PoolSpec) -> int:
        return command.gpus(pool, usual=1)
