"""Quantised weights: bits, scales, and which parts of a model stay in 16 bits."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from kilocard.core.errors import SpecError
from kilocard.perf.parameters import (
    ATTENTION,
    EMBEDDING,
    EXPERTS,
    HEAD,
    LINEAR,
    MLP,
    NORM,
    ROUTER,
    SHARED,
    SMALL,
    TOWER,
)

#: Never quantised by anyone but GGUF: too small to pay, or too sensitive.
ALWAYS_KEPT = frozenset({NORM, ROUTER, SMALL, EMBEDDING, HEAD, TOWER})


@dataclass(frozen=True, slots=True)
class Quantization:
    """`bits` of a weight plus `scale_bits` for every `group` weights (0: one scale a row, which nobody can see)."""

    #: fp8, int8, int4, mxfp4, nvfp4, gguf, bitsandbytes
    method: str
    bits: float
    group: int = 0
    scale_bits: float = 0
    #: parts that keep the model's own dtype
    kept: frozenset[str] = ALWAYS_KEPT
    #: bits of an expert's weight with its scales when experts are quantised further (DeepSeek V4), 0 = as the rest
    expert_bits: float = 0
    #: the checkpoint wants its KV cache in so many bits, 0 = it does not say
    kv_bits: int = 0
    #: bits of activations in matrix products, for the speed model: 16, 8 or 4
    activation_bits: int = 16

    @property
    def weight_bits(self) -> float:
        """Bits that a quantised weight takes with its share of the scales."""
        return self.bits + (self.scale_bits / self.group if self.group else 0)

    def bits_of(self, part: str, plain_bits: int) -> float:
        if part == EXPERTS and self.expert_bits:
            return self.expert_bits
        return plain_bits if part in self.kept else self.weight_bits


FP8 = Quantization("fp8", 8, activation_bits=8)
#: blocks of 128 x 128 with a 32-bit scale (DeepSeek, Qwen3-FP8)
FP8_BLOCK = Quantization("fp8", 8, group=128 * 128, scale_bits=32, activation_bits=8)
INT8 = Quantization("int8", 8, activation_bits=8)
#: weights in 8 bits, products in 16 (GPTQ 8-bit)
W8A16 = Quantization("int8", 8, group=128, scale_bits=16)
#: a 16-bit scale for 128 weights (compressed-tensors w4a16, symmetric)
INT4 = Quantization("int4", 4, group=128, scale_bits=16)
#: and a 4-bit zero point (AWQ; GPTQ packs one too)
INT4_ZERO = Quantization("int4", 4, group=128, scale_bits=20)
#: NF4 as vLLM loads it: a 32-bit absmax for 64 weights, double quantised to 8 bits
NF4 = Quantization("bitsandbytes", 4, group=64, scale_bits=8.5)
INT8_BNB = Quantization("bitsandbytes", 8)
MXFP4 = Quantization(
    "mxfp4", 4, group=32, scale_bits=8, kept=ALWAYS_KEPT | {ATTENTION, MLP, SHARED, LINEAR}, activation_bits=16
)
NVFP4 = Quantization("nvfp4", 4, group=16, scale_bits=8, activation_bits=4)

#: bits a weight in llama.cpp's types, scales included (ggml-quants); mixes are averages over a 7B model's file
GGUF_BITS = {
    "F16": 16.0, "BF16": 16.0, "Q8_0": 8.5, "Q6_K": 6.5625, "Q5_K_M": 5.69, "Q5_K_S": 5.54, "Q5_1": 6.0, "Q5_0": 5.5,
    "Q4_K_M": 4.85, "Q4_K_S": 4.58, "Q4_1": 5.0, "Q4_0": 4.5, "IQ4_XS": 4.25, "IQ4_NL": 4.5, "Q3_K_L": 4.27,
    "Q3_K_M": 3.91, "Q3_K_S": 3.5, "IQ3_XXS": 3.06, "Q2_K": 2.96, "IQ2_XXS": 2.06, "MXFP4": 4.25,
}  # fmt: skip

NAMED = {
    "fp8": FP8, "fp8-dynamic": FP8, "fp8-static": FP8, "fp8-block": FP8_BLOCK, "fbgemm_fp8": FP8, "ptpc_fp8": FP8,
    "w8a8": INT8, "int8": INT8, "w8a16": W8A16, "gptq-int8": W8A16,
    "w4a16": INT4, "int4": INT4, "awq": INT4_ZERO, "awq_marlin": INT4_ZERO, "gptq": INT4_ZERO,
    "gptq_marlin": INT4_ZERO, "gptq-int4": INT4_ZERO,
    "bitsandbytes": NF4, "bnb": NF4, "nf4": NF4, "bnb-8bit": INT8_BNB,
    "mxfp4": MXFP4, "nvfp4": NVFP4, "modelopt_fp4": NVFP4, "modelopt": FP8,
    "compressed-tensors": FP8,
}  # fmt: skip

#: names that say "not quantised"
PLAIN = {"", "none", "null", "auto", "bf16", "bfloat16", "fp16", "float16", "half", "fp32", "float32"}


def quantization(name: str) -> Quantization | None:
    """By the name that a command line or a model's name gives ("fp8", "AWQ", "Q4_K_M"); None for plain weights.

    Raises SpecError that lists what is known.
    """
    asked = name.strip().lower()
    if asked in PLAIN:
        return None
    if asked in NAMED:
        return NAMED[asked]
    gguf = asked.upper().removeprefix("GGUF-").removeprefix("GGUF:")
    if gguf in GGUF_BITS:
        return gguf_type(gguf)
    known = ", ".join([*NAMED, *GGUF_BITS])
    raise SpecError(f"quantization {name!r} is not known; known are {known}, and 'none'")


def gguf_type(name: str) -> Quantization:
    """llama.cpp quantises the embedding and the head too."""
    return Quantization("gguf", GGUF_BITS[name], kept=frozenset({NORM, ROUTER, SMALL, TOWER}))


def read_quantization(config: Mapping[str, Any]) -> Quantization | None:
    """From `quantization_config` (or the flat `quantization`) of a config.json; None when it has none.

    Raises SpecError for a method that is not known.
    """
    found = config.get("quantization_config") or config.get("quantization") or config.get("compression_config")
    if not found:
        return None
    if isinstance(found, str):
        return quantization(found)
    layers = int(config.get("num_hidden_layers") or 0)
    method = str(found.get("quant_method") or found.get("quant_algo") or "").lower()
    algorithm = str(found.get("quant_algo") or "").upper()
    if method in {"modelopt", "modelopt_fp4", "nvfp4", "fp8"} and algorithm in {"NVFP4", "MIXED_PRECISION"}:
        return _kept(NVFP4, found, layers)
    if method == "compressed-tensors":
        return _kept(_compressed_tensors(found), found, layers)
    if method in {"awq", "gptq"}:
        bits = int(found.get("bits") or found.get("w_bit") or 4)
        group = int(found.get("group_size") or found.get("q_group_size") or 128)
        return _kept(Quantization(f"int{bits}", bits, max(group, 0), 16 + bits if group > 0 else 0), found, layers)
    if method in {"fp8", "fbgemm_fp8"}:
        base = FP8_BLOCK if found.get("weight_block_size") else FP8
        family = str(config.get("architecture") or config.get("architectures") or config.get("model_type") or "")
        # DeepSeek V4's experts are in MXFP4 unless its config says otherwise
        silent = "fp4" if "deepseek" in family.lower() and "v4" in family.lower() else ""
        if str(config.get("expert_dtype") or silent).lower() in {"fp4", "mxfp4"}:
            base = replace(base, expert_bits=MXFP4.weight_bits)
        return _kept(base, found, layers)
    if method == "bitsandbytes":
        return _kept(INT8_BNB if found.get("load_in_8bit") else NF4, found, layers)
    return _kept(quantization(method) or FP8, found, layers)


def _compressed_tensors(found: Mapping[str, Any]) -> Quantization:
    """The first group of `config_groups`; without groups it is the FP8 that most such models are."""
    groups = found.get("config_groups") or {}
    for each in groups.values():
        weights = each.get("weights") or {}
        bits, strategy = int(weights.get("num_bits", 8)), weights.get("strategy")
        if weights.get("type") == "float" and bits == 4:
            return NVFP4 if weights.get("group_size", 16) == 16 else replace(MXFP4, kept=ALWAYS_KEPT)
        activations = 16 if each.get("input_activations") is None else 8
        if weights.get("type") == "float":
            return FP8_BLOCK if strategy == "block" else FP8
        group = int(weights.get("group_size") or 0)
        scale = 16 if weights.get("symmetric", True) else 16 + bits
        return Quantization(f"int{bits}", bits, max(group, 0), scale, activation_bits=activations)
    return FP8


#: What a name in a list of modules to leave alone means for us
_IGNORED = (
    (re.compile(r"lm_head"), HEAD),
    (re.compile(r"vis(ion|ual)|tower|projector"), TOWER),
    (re.compile(r"shared_expert"), SHARED),
    (re.compile(r"linear_attn|mamba|mixer"), LINEAR),
    (re.compile(r"self_attn|attention"), ATTENTION),
    (re.compile(r"mlp\\?\.\S*proj|mlp$"), MLP),
)


def _kept(base: Quantization, found: Mapping[str, Any], layers: int) -> Quantization:
    """Adds what the config's own list leaves alone: by a pattern, or by name in half of the layers or more."""
    listed = found.get("ignore") or found.get("modules_to_not_convert") or found.get("ignored_layers") or []
    listed = listed or found.get("exclude_modules") or found.get("llm_int8_skip_modules") or []
    kept = set(base.kept)
    named: dict[str, set[str]] = {}
    for module in map(str, listed):
        part = next((part for pattern, part in _IGNORED if pattern.search(module)), None)
        number = re.search(r"layers\.(\d+)\.", module)
        if part is not None and number is None:
            kept.add(part)
        elif part is not None and number is not None:
            named.setdefault(part, set()).add(number[1])
    kept |= {part for part, numbers in named.items() if layers and len(numbers) * 2 >= layers}
    return replace(base, kept=frozenset(kept), kv_bits=_kv_bits(found))


def _kv_bits(found: Mapping[str, Any]) -> int:
    scheme = found.get("kv_cache_scheme")
    if isinstance(scheme, Mapping):
        return 8 if scheme.get("num_bits") == 8 or scheme.get("dtype") == "fp8" else 0
    return 8 if str(found.get("kv_cache_quant_algo")).upper() == "FP8" else 0
