"""What leads from a vision or audio tower into the language model: two matrices in most, each maker in its own way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def projector(config: Mapping[str, Any], section: Mapping[str, Any], width: int, hidden: int) -> int:
    """Parameters. `config` has the top-level fields, `section` the tower's; `width` is the tower's, `hidden` that of
    the language model."""
    tower, whole = str(section.get("model_type") or ""), str(config.get("model_type") or "")
    out = _number(section, "out_hidden_size") or hidden
    merged = width * _merge(config, section) ** 2
    if "out_hidden_size" in section and (tower.startswith("glm") or whole.startswith("glm")):
        between = _number(section, "intermediate_size") if tower.startswith("glm4") else 3 * out
        return merged * out + out * out + 3 * out * between
    if "out_hidden_size" in section or tower.startswith("qwen") or whole.startswith("qwen2_vl"):
        levels = section.get("deepstack_visual_indexes")
        mergers = 1 + (len(levels) if isinstance(levels, list) else 0)
        return mergers * merged * (merged + out)
    if tower.startswith(("moonvit", "kimi")) or whole.startswith("kimi"):
        return merged * (merged + hidden)
    if whole.startswith("mistral3"):
        return merged * width + width * hidden + hidden * hidden
    if whole.startswith(("gemma3", "gemma4")) or tower.startswith("gemma4"):
        return width * hidden
    if _number(section, "projector_input_dim"):  # Llama 4
        inside, last = _number(section, "projector_input_dim"), _number(section, "projector_output_dim")
        shuffled = width * 4
        return shuffled * inside + inside * last + (_number(section, "vision_output_dim") or last) * hidden
    if _number(section, "vision_output_dim"):  # Llama 3.2 Vision
        return _number(section, "vision_output_dim") * hidden
    aligned = _number(config, "alignment_intermediate_size")
    if aligned:  # Command A Vision: the first matrix makes a gate too
        return merged * aligned + aligned // 2 * hidden
    if _number(section, "d_model") or "encoder_layers" in section:  # audio: one matrix
        return width * hidden
    return merged * hidden + hidden * hidden


def _merge(config: Mapping[str, Any], section: Mapping[str, Any]) -> int:
    """How many patches in a row become one token."""
    kernel = section.get("merge_kernel_size")
    if isinstance(kernel, list) and kernel:
        return int(kernel[0])
    for source in (section, config):
        stated = _number(source, "spatial_merge_size") or _number(source, "merge_size")
        if stated:
            return stated
    ratio = config.get("downsample_ratio")
    if isinstance(ratio, float) and 0 < ratio < 1:
        return round(1 / ratio)
    return _number(config, "downsample_factor") or 1


def _number(source: Mapping[str, Any], name: str) -> int:
    value = source.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
