"""What the planner's numbers are called on each engine's command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from kilocard.core.errors import EngineError


@dataclass(frozen=True, slots=True)
class Tuning:
    """Names of flags, as a pool's `args` take them; None: the engine has no such flag."""

    utilization: str | None = None
    max_model_len: str | None = None
    max_num_seqs: str | None = None
    max_num_batched_tokens: str | None = None
    dtype: str | None = None
    quantization: str | None = None
    kv_cache_dtype: str | None = None
    #: a switch that is on by default elsewhere is not written
    prefix_caching: str | None = None
    enforce_eager: str | None = None
    #: size of attention's data parallelism inside one replica, and switches that it needs
    data: str | None = None
    data_also: tuple[str, ...] = ()
    #: experts shared out whole: a switch, or (`expert_size`) a number of GPUs
    expert: str | None = None
    expert_size: str | None = None
    #: a switch that leaves the tower of a vision model out
    text_only: str | None = None
    #: tokens of a block of the KV cache
    block_size: str | None = None
    #: how it shares memory out: a word of perf.setting.BUDGETS
    budget: str = "profiled"


_TUNING: Mapping[str, Tuning] = MappingProxyType(
    {
        "vllm": Tuning(
            "gpu-memory-utilization", "max-model-len", "max-num-seqs", "max-num-batched-tokens", "dtype",
            "quantization", "kv-cache-dtype", "enable-prefix-caching", "enforce-eager", "data-parallel-size",
            expert="enable-expert-parallel", text_only="language-model-only",
            block_size="block-size",
        ),
        "sglang": Tuning(
            "mem-fraction-static", "context-length", "max-running-requests", "chunked-prefill-size", "dtype",
            "quantization", "kv-cache-dtype", None, "disable-cuda-graph", "dp-size",
            ("enable-dp-attention",), expert_size="ep-size", block_size="page-size", budget="static",
        ),
        "trtllm": Tuning(
            "kv_cache_free_gpu_memory_fraction", "max_seq_len", "max_batch_size", "max_num_tokens",
            expert_size="ep_size", budget="of_free",
        ),
    }
)  # fmt: skip

PLANNED = tuple(_TUNING)


def tuning(engine: str) -> Tuning:
    """Raises EngineError for an engine that plans are not made for."""
    found = _TUNING.get(engine)
    if found is None:
        raise EngineError(f"plans are made for {', '.join(PLANNED)}, not for {engine!r}", param="engine")
    return found
