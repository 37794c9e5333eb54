"""How the engine is started: what was asked, and what it comes to for a model on a GPU."""

from __future__ import annotations

from dataclasses import dataclass

from kilocard.core.errors import UsageError
from kilocard.perf import engine_defaults as defaults
from kilocard.perf.architecture import Architecture
from kilocard.perf.gpus import Gpu
from kilocard.perf.quantization import Quantization, quantization
from kilocard.perf.usual_weights import usual

#: How an engine shares memory out. PROFILED: a share of the whole for weights, the peak of a trial run and the cache
#: (vLLM); STATIC: a share of the whole for weights and cache, the peak outside it (SGLang's --mem-fraction-static);
#: OF_FREE: the cache is a share of what is free once the model is loaded (TensorRT-LLM).
PROFILED, STATIC, OF_FREE = "profiled", "static", "of_free"
BUDGETS = (PROFILED, STATIC, OF_FREE)

KV_BYTES = {
    "auto": 0,
    "bfloat16": 2,
    "float16": 2,
    "bf16": 2,
    "fp16": 2,
    "half": 2,
    "float32": 4,
    "int8": 1,
    "nvfp4": 0.5625,
}
DTYPE_BYTES = {"bfloat16": 2, "float16": 2, "half": 2, "bf16": 2, "fp16": 2, "float32": 4, "float": 4, "fp32": 4}


@dataclass(frozen=True, slots=True)
class EngineSetting:
    """What the command line says. None = the engine's default for its version and the GPU; "auto" as the engine has it.

    `weights_gib` and `kv_gib` pin what was measured on one GPU ("Model loading took …", "Available KV cache memory").
    """

    budget: str = PROFILED
    version: str | None = None
    utilization: float | None = None
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    dtype: str = "auto"
    quantization: str | None = None
    kv_cache_dtype: str = "auto"
    block_size: int | None = None
    enforce_eager: bool = False
    prefix_caching: bool | None = None
    hybrid_manager: bool | None = None
    #: images that the profile run encodes at once (--limit-mm-per-prompt) and tokens of the largest; 0 = text only
    images: int = 1
    image_tokens: int | None = None
    weights_gib: float | None = None
    kv_gib: float | None = None
    gpu_memory_gib: float | None = None


@dataclass(frozen=True, slots=True)
class Resolved:
    """The setting with nothing left open. GiB are 2^30 bytes."""

    budget: str
    version: defaults.Version
    total_gib: float
    utilization: float
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    weight_bytes: int
    quantization: Quantization | None
    #: bytes of a cached element
    kv_bytes: float
    kv_dtype: str
    block_size: int
    enforce_eager: bool
    prefix_caching: bool
    hybrid_manager: bool
    images: int
    image_tokens: int | None
    #: what nobody said, and what was taken: ("max_num_seqs", "1024")
    assumed: tuple[tuple[str, str], ...]


def resolve(setting: EngineSetting, architecture: Architecture, gpu: Gpu) -> Resolved:
    """Raises UsageError for a value that no engine takes."""
    if setting.budget not in BUDGETS:
        raise UsageError(f"budget {setting.budget!r} is none of {', '.join(BUDGETS)}")
    version = defaults.parse_version(setting.version)
    assumed: list[tuple[str, str]] = []
    if not setting.version:
        assumed.append(("engine version", "{}.{}".format(*version)))
    elif defaults.unreleased(setting.version):
        newest = "{}.{}".format(*version)
        assumed.append(("engine version", f"{newest}, the newest that is known, for {setting.version}"))
    utilization = setting.utilization
    if utilization is None:
        utilization = _default_utilization(setting.budget, version)
        assumed.append(("gpu_memory_utilization", f"{utilization:g}"))
    if not 0 < utilization <= 1:
        raise UsageError(f"gpu_memory_utilization {utilization:g} is not between 0 and 1")
    length = setting.max_model_len or architecture.max_length
    if length is None:
        length = 4096
        assumed.append(("max_model_len", f"{length} (the config states none)"))
    elif not setting.max_model_len:
        assumed.append(("max_model_len", str(length)))
    seqs = setting.max_num_seqs
    if seqs is None:
        seqs = defaults.max_num_seqs(version, gpu)
        assumed.append(("max_num_seqs", str(seqs)))
    batched = setting.max_num_batched_tokens
    if batched is None:
        batched = max(defaults.max_num_batched_tokens(version, gpu, length), seqs)
        if setting.images:
            batched = max(batched, architecture.step_tokens)
        assumed.append(("max_num_batched_tokens", str(batched)))
    for name, value in (("max_model_len", length), ("max_num_seqs", seqs), ("max_num_batched_tokens", batched)):
        if value < 1:
            raise UsageError(f"{name} {value} is not a whole number, 1 or more")
    dtype = setting.dtype if setting.dtype != "auto" else architecture.dtype
    if dtype not in DTYPE_BYTES:
        raise UsageError(f"dtype {setting.dtype!r} is not known; known are auto, {', '.join(DTYPE_BYTES)}")
    weights = _quantization(setting.quantization, architecture)
    kv_dtype = setting.kv_cache_dtype.lower()
    says = weights is not None and weights.kv_bits == 8 and version >= defaults.CHECKPOINT_KV_SINCE
    if says and kv_dtype in {"", "auto"}:
        kv_dtype = "fp8"
        assumed.append(("kv_cache_dtype", "fp8 (the checkpoint asks for it)"))
    hybrid = setting.hybrid_manager
    caching = setting.prefix_caching
    if caching is None:
        caching = version >= defaults.HYBRID_PREFIX_CACHING_SINCE or not architecture.recurrent
        if not caching:
            assumed.append(("prefix caching", "off, as this version has it for a model with recurrent layers"))
    return Resolved(
        budget=setting.budget,
        version=version,
        total_gib=setting.gpu_memory_gib or gpu.memory_gib,
        utilization=utilization,
        max_model_len=length,
        max_num_seqs=seqs,
        max_num_batched_tokens=batched,
        weight_bytes=DTYPE_BYTES[dtype],
        quantization=weights,
        kv_bytes=_kv_bytes(kv_dtype, DTYPE_BYTES[dtype]),
        kv_dtype=kv_dtype,
        block_size=setting.block_size or _block_size(architecture, version),
        enforce_eager=setting.enforce_eager,
        prefix_caching=caching,
        hybrid_manager=version >= defaults.HYBRID_MANAGER_SINCE if hybrid is None else hybrid,
        images=setting.images,
        image_tokens=setting.image_tokens,
        assumed=tuple(assumed),
    )


def _default_utilization(budget: str, version: defaults.Version) -> float:
    if budget == STATIC:
        return defaults.SGLANG_STATIC_FRACTION
    if budget == OF_FREE:
        return defaults.TRTLLM_FREE_FRACTION
    return defaults.at(defaults.UTILIZATION, version).value


def _quantization(asked: str | None, architecture: Architecture) -> Quantization | None:
    """What was asked for, unless the checkpoint is quantised already and says more of itself than the name does."""
    own = architecture.quantization
    if asked is None or asked in {"", "auto"}:
        return own
    wanted = quantization(asked)
    if own is not None and (
        wanted is None or wanted.method == own.method or asked in {"compressed-tensors", "modelopt"}
    ):
        return own
    return usual(wanted, architecture)


def _kv_bytes(dtype: str, weight_bytes: int) -> float:
    if dtype in {"", "auto"}:
        return weight_bytes
    if dtype.startswith("fp8"):
        return 1
    if dtype not in KV_BYTES:
        raise UsageError(
            f"kv_cache_dtype {dtype!r} is not known; known are fp8, fp8_e4m3, fp8_e5m2, {', '.join(KV_BYTES)}"
        )
    return KV_BYTES[dtype]


def _block_size(architecture: Architecture, version: defaults.Version) -> int:
    """16 tokens; 64 for MLA kernels of engine V1, 256 for DeepSeek V4. Capacity hardly depends on it."""
    kinds = {group.kind for group in architecture.layer_groups}
    if "compressed" in kinds:
        return 256
    if "mla" in kinds and version >= (0, 20):
        return 64
    return 16
