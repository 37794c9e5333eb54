"""Memory outside the cache for engines that split it in another way than vLLM."""

from __future__ import annotations

from kilocard.perf.gpus import Gpu
from kilocard.perf.weights import GIB

#: tokens in a block of TensorRT-LLM's cache
TRTLLM_BLOCK = 32
#: GiB beside the weights on one H100 with TensorRT-LLM: context, kernels, buffers of the executor
TRTLLM_BASE_GIB = 2.75
#: GiB that communicators add, by tensor-parallel size
TRTLLM_LINKS_GIB = {1: 0.0, 2: 1.05, 4: 1.6, 8: 2.1}


def trtllm_outside_gib(gpu: Gpu, tensor: int, batched_tokens: int, hidden: int) -> float:
    """Fitted on Llama 3.1 8B at TP1, 2 and 4 on H100 and GB300; a Blackwell context holds half a GiB more."""
    links = TRTLLM_LINKS_GIB.get(tensor, 2.1)
    context = 0.55 if gpu.capability >= 100 else 0.0
    return TRTLLM_BASE_GIB + links + context + 4 * batched_tokens * hidden * 2 / GIB
