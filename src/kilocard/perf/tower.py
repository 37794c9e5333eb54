"""Parameters of a vision or audio tower and its projector, from a config's own section."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: of families whose flat entries say nothing of the tower that they have, in millions
BY_FAMILY = {
    "Gemma3ForConditional": 420, "Mistral3": 439, "KimiVL": 447, "KimiK25": 470, "Llama4ForConditional": 870,
    "Qwen2_5_VL": 680, "Qwen2VL": 675, "Qwen3VLMoe": 560, "Qwen3VL": 500, "Qwen3_5": 455, "Gemma4ForConditional": 570,
}  # fmt: skip


def tower_parameters(config: Mapping[str, Any], hidden: int, family: str = "") -> int:
    """0 for a text model. A flat entry may state `tower_parameters` (from the checkpoint's size) itself."""
    stated = config.get("tower_parameters")
    if isinstance(stated, int) and not isinstance(stated, bool):
        return stated
    parameters = 0
    for key in ("vision_config", "vision_tower_config", "vit_config", "audio_config", "audio_encoder_config"):
        section = config.get(key)
        if isinstance(section, Mapping) and section:
            parameters += _encoder(section, hidden)
    thinker = config.get("thinker_config")
    if isinstance(thinker, Mapping):
        parameters += tower_parameters(thinker, hidden)
    if parameters or "text_config" in config:
        return parameters
    return next((size * 10**6 for start, size in BY_FAMILY.items() if family.startswith(start)), 0)


def _first(section: Mapping[str, Any], *names: str) -> int:
    for name in names:
        value = section.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return 0


def _encoder(section: Mapping[str, Any], hidden: int) -> int:
    """A transformer encoder: four square matrices and a feed-forward network a layer, patches, and two projections."""
    # Qwen2-VL calls its width embed_dim and keeps hidden_size for the language model's
    width = _first(section, "embed_dim", "hidden_size", "vt_hidden_size", "d_model", "width", "n_embd")
    layers = _first(section, "depth", "num_hidden_layers", "vt_num_hidden_layers", "encoder_layers", "layers")
    inner = _first(section, "intermediate_size", "vt_intermediate_size", "encoder_ffn_dim")
    inner = inner or int(width * float(section.get("mlp_ratio") or 4))
    # Pixtral and Qwen2.5-VL have SwiGLU
    matrices = 3 if str(section.get("hidden_act")) == "silu" or section.get("model_type") == "pixtral" else 2
    merged = width * _first(section, "spatial_merge_size") ** 2 if _first(section, "spatial_merge_size") else width
    projector = merged * hidden + hidden * hidden
    return layers * (4 * width * width + matrices * width * inner) + projector


#: families that take an image of any size: 16,384 tokens at most, four patches each
ANY_SIZE = ("Qwen2VL", "Qwen2_5_VL", "Qwen3VL", "Qwen3_5", "MiMoVL")
#: width and feed-forward width (gated or not: matrices × width) of their towers when the config has no section for it
TOWERS = {"Qwen3": (1152, 2 * 4304)}
QWEN_2_TOWER = (1280, 3 * 3420)


def largest_image(config: Mapping[str, Any], family: str) -> tuple[int, int]:
    """Tokens of the largest image, and bytes held for each while the tower works on it; zeros when not known.

    For each patch the feed-forward network's intermediates and eight rows of the tower's width, 16 bits each: the
    2.5 GiB that start-ups with Qwen2.5-VL's tower show whatever the language model.
    """
    if not family.startswith(ANY_SIZE):
        return 0, 0
    section = config.get("vision_config")
    width, inner = TOWERS.get(family[:5], QWEN_2_TOWER)
    if isinstance(section, Mapping) and section:
        width = _first(section, "embed_dim", "hidden_size") or width
        inner = (3 if str(section.get("hidden_act")) == "silu" else 2) * (
            _first(section, "intermediate_size") or inner // 3
        )
    return 16384, 4 * (inner + 8 * width) * 2
