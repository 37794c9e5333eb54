"""Quantised weights: bits, scales, and which parts of a model stay in 16 bits."""

from __future__ import annotations

from dataclasses import dataclass, replace

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
    #: parts that keep it in some layers only, with the share of their weights: (("mlp", 0.25),)
    kept_shares: tuple[tuple[str, float], ...] = ()
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
        if part in self.kept:
            return plain_bits
        share = dict(self.kept_shares).get(part, 0.0)
        return share * plain_bits + (1 - share) * self.weight_bits


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
#: by name alone it is taken for one of NVIDIA's checkpoints, which ask for an FP8 cache (seen: GLM-4.7, vLLM 0.15.1)
NVIDIAS_NVFP4 = replace(NVFP4, kv_bits=8)

#: microscaled 8 bits
MXFP8 = Quantization("fp8", 8, group=32, scale_bits=8, activation_bits=8)
#: 8 bits for the experts alone
INT8_EXPERTS = Quantization("int8", 8, kept=ALWAYS_KEPT | {ATTENTION, MLP, SHARED, LINEAR})

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
    "auto_awq": INT4_ZERO, "auto_gptq": INT4_ZERO, "gptq_bitblas": INT4_ZERO, "bitblas": INT4, "moe_wna16": INT4,
    "auto-round": INT4, "auto_round": INT4, "inc": INT4, "hqq": INT4, "experts_int8": INT8_EXPERTS,
    "int8_per_channel_weight_only": Quantization("int8", 8), "eetq": Quantization("int8", 8), "deepspeedfp": FP8,
    "fp8_per_tensor": FP8, "fp8_per_channel": FP8, "fp8_per_block": FP8_BLOCK, "deepseek_v4_fp8": FP8_BLOCK,
    "mxfp8": MXFP8, "modelopt_mxfp8": MXFP8, "mxfp4": MXFP4, "gpt_oss_mxfp4": MXFP4, "nvfp4": NVIDIAS_NVFP4,
    "modelopt_fp4": NVIDIAS_NVFP4, "modelopt_mixed": NVIDIAS_NVFP4, "nvfp4_per_token": NVFP4, "modelopt": FP8,
    "quark": FP8, "torchao": INT8, "compressed-tensors": FP8,
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
    if asked == "gguf":
        return gguf_type("Q4_K_M")
    gguf = asked.upper().removeprefix("GGUF-").removeprefix("GGUF:")
    if gguf in GGUF_BITS:
        return gguf_type(gguf)
    known = ", ".join([*NAMED, *GGUF_BITS])
    raise SpecError(f"quantization {name!r} is not known; known are {known}, and 'none'")


def gguf_type(name: str) -> Quantization:
    """llama.cpp quantises the embedding and the head too."""
    return Quantization("gguf", GGUF_BITS[name], kept=frozenset({NORM, ROUTER, SMALL, TOWER}))
