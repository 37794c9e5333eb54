"""What engines do when nobody says otherwise, by version and GPU. The one place that changes with a release.

Dated 2026-11. vLLM's numbers are read from its source (config/cache.py, engine/arg_utils.py, v1/core/kv_cache_utils.py,
v1/worker/gpu_worker.py of 0.32) and from start-up logs of older versions; those of SGLang and TensorRT-LLM from their
documentation. `since` is the first version that behaves so.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from kilocard.core.errors import UsageError
from kilocard.perf.gpus import Gpu

DATED = "2026-11"
Version = tuple[int, int]
#: assumed when no version is given
NEWEST: Version = (0, 32)


#: first release of a month, for logs that state only a date
RELEASES: dict[str, Version] = {
    "2023-06": (0, 1), "2023-12": (0, 2), "2024-04": (0, 4), "2024-06": (0, 5), "2024-09": (0, 6), "2025-01": (0, 7),
    "2025-03": (0, 8), "2025-05": (0, 9), "2025-07": (0, 10), "2025-10": (0, 11), "2025-12": (0, 12),
    "2026-01": (0, 14), "2026-02": (0, 15), "2026-03": (0, 17), "2026-04": (0, 19), "2026-05": (0, 20),
    "2026-06": (0, 22), "2026-07": (0, 24), "2026-09": (0, 28), "2026-11": (0, 32),
}  # fmt: skip
MONTHS = ("january", "february", "march", "april", "may", "june", "july", "august", "september", "october",
          "november", "december")  # fmt: skip

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Since:
    version: Version
    value: float
    why: str


#: --gpu-memory-utilization
UTILIZATION = (Since((0, 1), 0.90, "since the first release"), Since((0, 22), 0.92, "raised in 0.22"))

#: bytes that the sampler's profile run holds for each vocabulary entry and sequence: 32-bit logits, their sorted copy,
#: 64-bit indices, probabilities and cumulative sums; less since top-k and top-p no longer sort everything
SAMPLER_BYTES = (
    Since((0, 1), 38.1, "measured 38.06-38.30 on nine of ten start-ups of 0.11 to 0.16"),
    Since((0, 17), 14.57, "14.5 to 14.7 on the start-ups of 12 text models at 0.19"),
)

#: GiB outside PyTorch's allocator on one GPU without tensor parallelism
NON_TORCH = (
    Since((0, 1), 0.35, "0.6.4 on a 3090 and a V100: the CUDA context counts"),
    Since((0, 7), 0.06, "0.7 to 0.10: 0.01 to 0.09 on seven cards; the context is in the snapshot before"),
    Since((0, 11), 0.13, "0.11 on H100: 0.13 to 0.14"),
    Since((0, 18), 0.25, "0.18 and 0.19 on H100: 0.24 to 0.26"),
)

#: compute capability times ten that wheels are built for at least
CAPABILITY = (
    Since((0, 1), 70, "installation page"),
    Since((0, 11), 75, "PyTorch 2.8 for CUDA 12.8 has no Volta; installation page of 2026: 7.5 or higher"),
)

#: the KV manager that gives window layers their own, smaller share of the blocks
HYBRID_MANAGER_SINCE: Version = (0, 10)
#: and that does so for chunks (Llama 4), off by default before because it was slower
CHUNKED_HYBRID_SINCE: Version = (0, 12)
#: and that can do so when layers differ in bytes a token (Gemma 4)
MIXED_PAGES_SINCE: Version = (0, 21)
#: "GPU KV cache size" is max_concurrency × max_model_len for every model
TOKENS_BY_CONCURRENCY_SINCE: Version = (0, 20)
#: CUDA graphs are estimated and taken out of the budget
GRAPHS_IN_BUDGET_SINCE: Version = (0, 21)
#: an A100 of 80 GB gets the small defaults too, since large batches made it slower
A100_SMALL_SINCE: Version = (0, 9)
#: 16,384 tokens a step on GPUs of 160 GiB and more (8,192 on a B200 at 0.25)
LARGEST_BATCHES_SINCE: Version = (0, 26)
#: a checkpoint that says how its cache is to be stored is listened to
CHECKPOINT_KV_SINCE: Version = (0, 12)
#: chunked prefill whatever the length; before (engine V0) only above 32,768 tokens
CHUNKED_PREFILL_SINCE: Version = (0, 8)
#: window layers reserve for two steps, because the scheduler is one ahead of the GPU (one at 0.25, two at 0.32)
TWO_STEPS_IN_FLIGHT_SINCE: Version = (0, 26)
#: a hybrid model with recurrent states caches prefixes without being asked to (pull request 50991)
HYBRID_PREFIX_CACHING_SINCE: Version = (0, 28)
#: a start-up with more sequences than blocks for their states is refused (issue 34094)
STATE_FOR_EVERY_SEQUENCE_SINCE: Version = (0, 16)
#: no tower is loaded when no image may come (--language-model-only, or a limit of 0 images and videos)
TEXT_ONLY_SINCE: Version = (0, 12)
#: communicators are set up before the memory is looked at
NCCL_BEFORE_SNAPSHOT_SINCE: Version = (0, 10)
#: engine V0's chunked prefill switches itself on above this length
V0_CHUNKED_ABOVE = 32768

#: SGLang's --mem-fraction-static: weights and KV together, of the free memory at start
SGLANG_STATIC_FRACTION = 0.88
#: TensorRT-LLM's kv_cache_free_gpu_memory_fraction: of what is free once the engine is loaded
TRTLLM_FREE_FRACTION = 0.90


def unreleased(text: str) -> bool:
    """ "nightly-5b8c30d", "latest", "main": a version without a number, taken as the newest that this table has."""
    return re.match(r"(nightly|latest|main|master|dev)\b", text.strip().lower()) is not None


def parse_version(text: str | None) -> Version:
    """ "0.19.0", "v0.15.2rc", "V1, January 2025", "2026-05-12", "nightly-5b8c30d". Raises UsageError for the rest."""
    if not text:
        return NEWEST
    found = re.search(r"(\d+)\.(\d+)", text)
    if found:
        return int(found[1]), int(found[2])
    month = next((i + 1 for i, name in enumerate(MONTHS) if name[:3] in text.lower()), None)
    year = re.search(r"20\d\d", text)
    iso = re.search(r"20\d\d-\d\d", text)
    if iso or (month and year):
        date = iso[0] if iso else f"{year[0] if year else ''}-{month:02d}"
        known = [version for first, version in RELEASES.items() if first <= date]
        return known[-1] if known else (0, 1)
    if unreleased(text):
        return NEWEST
    raise UsageError(f"engine version {text!r} is not understood; write it as 0.19.0, or latest")


def at(rows: Sequence[Since], version: Version) -> Since:
    """The row that holds for a version."""
    return [row for row in rows if row.version <= version][-1]


def least_capability(version: Version) -> int:
    """Of a card that vLLM starts on, times ten."""
    return int(at(CAPABILITY, version).value)


def max_num_seqs(version: Version, gpu: Gpu) -> int:
    """Of `vllm serve`: by the memory of the GPU since engine V1."""
    if version < (0, 8):
        return 256
    return 1024 if _large(version, gpu) else 256


def max_num_batched_tokens(version: Version, gpu: Gpu, max_model_len: int) -> int:
    """Tokens in a step. Engine V0 without chunked prefill must take the longest prompt in one step."""
    if version < CHUNKED_PREFILL_SINCE:
        if max_model_len > V0_CHUNKED_ABOVE:
            return 512 if version < (0, 7) else 2048
        return max(max_model_len, 2048)
    if version >= LARGEST_BATCHES_SINCE and gpu.memory_gib >= 160:
        return 16384
    return 8192 if _large(version, gpu) else 2048


def _large(version: Version, gpu: Gpu) -> bool:
    small_by_name = gpu.name.startswith("A100") and version >= A100_SMALL_SINCE
    return gpu.memory_gib >= 70 and not small_by_name


def non_torch_gib(version: Version, gpu: Gpu, tensor: int, pipeline: int) -> float:
    """GiB of contexts, communicators and workspaces on one GPU, outside PyTorch.

    Measured: TP2 0.54-0.55 at 0.11, TP4 0.21 on L40S at 0.10; TP2 2.06-2.11, TP4 2.13-2.21 at 0.19, where FlashInfer's
    all-reduce workspace of GPUs with NVLink since Hopper is in it; PP without TP 0.07.
    """
    alone = at(NON_TORCH, version).value
    if tensor == 1:
        return 0.07 if pipeline > 1 and version >= (0, 11) else alone
    fused = version >= (0, 18) and gpu.capability in {90, 100, 103} and gpu.nvlink_gb_s > 0
    if fused:
        return 2.07 + 0.05 * (tensor.bit_length() - 2)
    if version >= (0, 18) and gpu.capability == 120 and not gpu.consumer and gpu.nvlink_gb_s == 0:
        return 1.45 + alone  # peers reach each other over PCIe: 1.70 each of four RTX PRO 6000 at 0.27
    # NCCL's own buffers are there before the snapshot; cards without NVLink exchange through them alone
    return alone + (0.15 if gpu.nvlink_gb_s == 0 and version >= NCCL_BEFORE_SNAPSHOT_SINCE else 0.42)


def cuda_graph_gib(layers: int, *, experts: bool, captured: int) -> float:
    """GiB of the captured graphs: 51 sizes up to 512 took 0.37 + 0.0172 a layer on H100s at 0.19 (8 to 80 layers),
    0.7 more for mixtures of experts; in proportion to how many sizes are captured."""
    return (0.37 + 0.0172 * layers + (0.7 if experts else 0)) * captured / 51


def captured_sizes(max_num_seqs: int) -> int:
    """How many batches vLLM captures: up to min(2 × max_num_seqs, 512)."""
    return max(1, len(graph_sizes(min(2 * max_num_seqs, 512))))


def graph_sizes(largest: int) -> list[int]:
    """1, 2, 4, then every 8 up to 256 and every 16 beyond."""
    sizes = [1, 2, 4, *range(8, 256, 8), *range(256, largest + 1, 16)]
    return [size for size in sizes if size <= largest]


def largest_graph(gpu: Gpu) -> int:
    """The largest batch that is captured: 1,024 on Blackwell's data center cards."""
    return 1024 if gpu.capability in {100, 103} else 512
