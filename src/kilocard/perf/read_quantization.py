"""quantization_config of a config.json → Quantization: every method's own fields, and what it leaves alone."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from kilocard.core.errors import SpecError
from kilocard.perf.config_fields import whole
from kilocard.perf.parameters import ATTENTION, HEAD, LINEAR, MLP, SHARED, TOWER
from kilocard.perf.quantization import (
    ALWAYS_KEPT,
    FP8,
    FP8_BLOCK,
    INT4,
    INT8,
    INT8_BNB,
    MXFP4,
    NF4,
    NVFP4,
    Quantization,
    quantization,
)

KEYS = ("quantization_config", "quantization", "compression_config")


def read_quantization(config: Mapping[str, Any]) -> Quantization | None:
    """From `quantization_config` (or the flat `quantization`) of a config.json; None when it has none.

    Raises SpecError for a method that is not known.
    """
    found = next((config[key] for key in KEYS if config.get(key)), None)
    if not found:
        return None
    if isinstance(found, str):
        return quantization(found)
    if not isinstance(found, Mapping):
        raise SpecError(f"quantization_config: an object was expected, this is a {type(found).__name__}")
    inner = found.get("quantization")
    if isinstance(inner, Mapping):  # ModelOpt's own file nests what others have at the top
        found = {**found, **inner}
    method = str(found.get("quant_method") or found.get("quant_algo") or "").lower()
    if not method:
        raise SpecError("quantization_config: quant_method is missing; it says how the other fields are to be read")
    base = _by_method(method, found, config)
    return _kept(base, found, _layers(config))


def _by_method(method: str, found: Mapping[str, Any], config: Mapping[str, Any]) -> Quantization:
    algorithm = str(found.get("quant_algo") or "").upper()
    if algorithm in {"NVFP4", "MIXED_PRECISION"} and method in {"modelopt", "modelopt_fp4", "nvfp4", "fp8"}:
        return NVFP4
    if method == "compressed-tensors":
        return _compressed_tensors(found)
    if method in {"awq", "gptq"}:
        return _grouped(found, zero_point=True)
    if method in {"auto-round", "auto_round", "inc"}:
        return _grouped(found, zero_point=not found.get("sym", True))
    if method == "hqq":
        inner = (found.get("quant_config") or {}).get("weight_quant_params") or {}
        return _grouped({"bits": inner.get("nbits"), "group_size": inner.get("group_size")}, zero_point=True)
    if method in {"fp8", "fbgemm_fp8"}:
        return _fp8(found, config)
    if method == "bitsandbytes":
        return INT8_BNB if found.get("load_in_8bit") else NF4
    if method == "quark":
        return _by_words(str((found.get("global_quant_config") or {}).get("weight")))
    if method == "torchao":
        return _by_words(str(found.get("quant_type")))
    return quantization(method) or FP8


def _grouped(found: Mapping[str, Any], *, zero_point: bool) -> Quantization:
    bits = whole("quantization_config.bits", found.get("bits") or found.get("w_bit") or 4)
    group = _group_size(found.get("group_size") or found.get("q_group_size") or 128)
    scale = 16 + (bits if zero_point else 0)
    return Quantization(f"int{bits}", bits, group, scale if group else 0)


def _group_size(value: Any) -> int:
    """-1 is one scale for a whole row or column: too few to count."""
    return 0 if value == -1 else whole("quantization_config.group_size", value)


def _layers(config: Mapping[str, Any]) -> int:
    """How many the config states, 0 where it does not: whoever reads the layers says so."""
    value = config.get("num_hidden_layers")
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _fp8(found: Mapping[str, Any], config: Mapping[str, Any]) -> Quantization:
    base = FP8_BLOCK if found.get("weight_block_size") else FP8
    family = str(config.get("architecture") or config.get("architectures") or config.get("model_type") or "")
    # DeepSeek V4's experts are in MXFP4 unless its config says otherwise
    silent = "fp4" if "deepseek" in family.lower() and "v4" in family.lower() else ""
    if str(config.get("expert_dtype") or silent).lower() in {"fp4", "mxfp4"}:
        return replace(base, expert_bits=MXFP4.weight_bits)
    return base


def _by_words(words: str) -> Quantization:
    """Quark and torchao name a type of number somewhere in a tree of their own."""
    told = words.lower()
    if "fp4" in told:
        return replace(MXFP4, kept=ALWAYS_KEPT)
    if "int4" in told:
        return INT4
    return FP8 if "fp8" in told or "float8" in told else INT8


def _compressed_tensors(found: Mapping[str, Any]) -> Quantization:
    """Of `config_groups` the one that is not about experts alone; without groups it is the FP8 that most such are."""
    stated = found.get("config_groups")
    groups = [each for each in stated.values() if isinstance(each, Mapping)] if isinstance(stated, Mapping) else []
    if not groups:
        return FP8
    experts = [each for each in groups if _only_experts(each)]
    others = [each for each in groups if each not in experts]
    base = _group(others[0] if others else groups[0])
    if experts and others and _group(experts[0]).weight_bits != base.weight_bits:
        return replace(base, expert_bits=_group(experts[0]).weight_bits)
    return base


def _only_experts(group: Mapping[str, Any]) -> bool:
    """Or of all feed-forward networks, which are experts for the most part where there are groups for parts."""
    targets = [str(target) for target in group.get("targets") or []]
    return bool(targets) and all(re.search(r"expert|ffn|mlp", each) and "shared" not in each for each in targets)


def _group(each: Mapping[str, Any]) -> Quantization:
    weights = each.get("weights")
    if not isinstance(weights, Mapping):
        raise SpecError("quantization_config.config_groups: a group without `weights` does not say how they are stored")
    strategy = weights.get("strategy")
    bits = whole("quantization_config.config_groups.weights.num_bits", weights.get("num_bits") or 8)
    if weights.get("type") == "float" and bits == 4:
        return NVFP4 if weights.get("group_size", 16) == 16 else replace(MXFP4, kept=ALWAYS_KEPT)
    if weights.get("type") == "float":
        return FP8_BLOCK if strategy == "block" else FP8
    group = _group_size(weights.get("group_size") or 0)
    scale = 16 if weights.get("symmetric", True) else 16 + bits
    activations = 16 if each.get("input_activations") is None else 8
    return Quantization(f"int{bits}", bits, group, scale, activation_bits=activations)


#: What a name in a list of modules to leave alone means for us
_IGNORED = (
    (re.compile(r"lm_head"), HEAD),
    (re.compile(r"vis(ion|ual)|tower|projector"), TOWER),
    (re.compile(r"shared_expert"), SHARED),
    (re.compile(r"linear_attn|mamba|mixer|(?<![a-z_])attn"), LINEAR),
    (re.compile(r"self_attn|attention|(?<![a-z_])attn"), ATTENTION),
    (re.compile(r"mlp\\?\.\S*proj|mlp$"), MLP),
)
_ANY_ATTENTION = re.compile(r"(?<![a-z_])attn")
LISTS = ("ignore", "modules_to_not_convert", "ignored_layers", "exclude_modules", "exclude", "llm_int8_skip_modules")


def _kept(base: Quantization, found: Mapping[str, Any], layers: int) -> Quantization:
    """Adds what the config's own list leaves alone: everywhere by a pattern, or by name layer for layer."""
    kept = set(base.kept)
    shares: dict[str, float] = {}
    for module in dict.fromkeys(_listed(found)):
        parts = [part for pattern, part in _IGNORED if pattern.search(module)]
        number = re.search(r"layers\.(\d+)\.", module)
        if number is None:  # ".*attn.*" means every kind of attention
            kept.update(parts if _ANY_ATTENTION.search(module) else parts[:1])
            continue
        for part in parts[:1] if layers else ():
            shares[part] = shares.get(part, 0.0) + _share(module, part) / layers
    kept |= {part for part, share in shares.items() if share > 0.99}
    partly = tuple(sorted((part, share) for part, share in shares.items() if part not in kept))
    return replace(base, kept=frozenset(kept), kept_shares=partly, kv_bits=_kv_bits(found))


def _listed(found: Mapping[str, Any]) -> Iterator[str]:
    for key in LISTS:
        listed = found.get(key)
        if isinstance(listed, list):
            yield from map(str, listed)
    dynamic = found.get("dynamic")  # GPTQModel's rules: "-:" before a pattern leaves its modules alone
    if isinstance(dynamic, Mapping):
        yield from (str(rule)[2:] for rule in dynamic if str(rule).startswith("-:"))


def _share(module: str, part: str) -> float:
    """Of a layer's part: one projection of four in attention, one of three in a feed-forward network."""
    if not module.endswith("_proj"):
        return 1.0
    fused = {"qkv_proj": 0.75, "gate_up_proj": 2 / 3}
    return fused.get(module.rsplit(".", 1)[-1], 0.25 if part in {ATTENTION, LINEAR} else 1 / 3)


def _kv_bits(found: Mapping[str, Any]) -> int:
    scheme = found.get("kv_cache_scheme")
    if isinstance(scheme, Mapping):
        return 8 if scheme.get("num_bits") == 8 or scheme.get("dtype") == "fp8" else 0
    return 8 if str(found.get("kv_cache_quant_algo")).upper() == "FP8" else 0
