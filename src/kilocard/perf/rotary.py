"""Tables of sines and cosines for rotary positions: the engine keeps one for each way of rotating, on every GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kilocard.perf.config_fields import Fields

#: families that rotate by time, height and width; the table is made for so many times the positions (vLLM's mrope)
THREE_AXES = ("Qwen2VL", "Qwen2_5_VL", "Qwen3VL", "Qwen3_5", "Qwen2_5Omni", "Qwen3Omni", "Glm4v", "KeyeVL")
MULTIPLE = 4
#: families with absolute positions or none
WITHOUT = ("GPT2", "OPT", "Bloom", "MPT", "NemotronH", "GPTBigCode")


def rotary_elements(fields: Fields, hidden: int) -> int:
    """positions × rotated dimensions, over all tables; linear scaling makes one `factor` times as long (Gemma 3)."""
    positions = fields.optional("max_position_embeddings", "n_positions", "seq_length") or 0
    if not positions or fields.is_family(*WITHOUT):
        return 0
    dim = fields.optional("qk_rope_head_dim") or _head_dim(fields, hidden)
    scaling = fields.raw("rope_scaling", "rope_parameters")
    inner = scaling.get("partial_rotary_factor") if isinstance(scaling, Mapping) else None
    partial = inner or fields.raw("partial_rotary_factor", "rotary_pct")
    if isinstance(partial, float | int) and not isinstance(partial, bool) and 0 < partial <= 1:
        dim = int(dim * partial)
    if fields.is_family(*THREE_AXES) or (isinstance(scaling, Mapping) and scaling.get("mrope_section")):
        positions *= MULTIPLE
    if not isinstance(scaling, Mapping):
        factors = [1.0]
    elif any(isinstance(inner, Mapping) for inner in scaling.values()):  # one for each kind of layer
        factors = [_stretch(inner) for inner in scaling.values() if isinstance(inner, Mapping)]
    else:
        factors = [_stretch(scaling)]
    if fields.raw("rope_local_base_freq") and len(factors) == 1:
        factors.append(1.0)  # Gemma 3 rotates in window layers with another base, unscaled
    return sum(int(positions * factor) * dim for factor in factors)


#: a longer stretch is no rotation's
MOST_STRETCHED = 1e6


def _stretch(scaling: Mapping[str, Any]) -> float:
    if str(scaling.get("rope_type") or scaling.get("type")) not in {"linear", "dynamic"}:
        return 1.0
    factor = scaling.get("factor")
    return float(factor) if isinstance(factor, int | float) and 1 < factor < MOST_STRETCHED else 1.0


def _head_dim(fields: Fields, hidden: int) -> int:
    heads = fields.optional("num_attention_heads", "n_head", "n_heads") or 1
    return fields.optional("head_dim", "kv_channels") or hidden // max(1, heads)
