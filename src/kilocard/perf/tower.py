"""Parameters of a vision or audio tower and its projector, from a config's own section."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kilocard.perf.projector import projector

#: of families whose flat entries say nothing of the tower that they have, in millions; text-only classes of the same
#: name have none, so what sees images is asked for by its class
BY_FAMILY = {
    "Gemma3ForConditional": 420, "Mistral3": 439, "KimiVL": 447, "KimiK25": 470, "Llama4ForConditional": 872,
    "Qwen2_5_VL": 680, "Qwen2VL": 675, "Qwen3VLMoe": 567, "Qwen3VL": 567, "Qwen3_5ForConditional": 455,
    "Qwen3_5MoeForConditional": 455, "Gemma3nForConditional": 980, "Gemma4ForConditional": 570,
    "Phi4Multimodal": 870, "Phi4MM": 870,
}  # fmt: skip
#: what the classes of these encoders fill in when a config leaves the number of layers out
CLASS_LAYERS = {"siglip": 12, "clip": 12, "pixtral": 24, "qwen2_vl": 32, "qwen2_5_vl": 32}
SECTIONS = ("vision_config", "vision_tower_config", "vit_config", "audio_config", "audio_encoder_config")


def tower_parameters(config: Mapping[str, Any], hidden: int, family: str = "") -> int:
    """0 for a text model. A flat entry may state `tower_parameters` (from the checkpoint's size) itself."""
    stated = config.get("tower_parameters")
    if isinstance(stated, int) and not isinstance(stated, bool):
        return stated
    parameters = 0
    for key in SECTIONS:
        section = config.get(key)
        if isinstance(section, Mapping) and section:
            parameters += _encoder(section)
            parameters += projector(config, section, _width(section), hidden) if parameters else 0
    thinker = config.get("thinker_config")
    if isinstance(thinker, Mapping):
        parameters += tower_parameters(thinker, hidden)
    if parameters or ("text_config" in config and not any(config.get(key) for key in SECTIONS)):
        return parameters
    return next((size * 10**6 for start, size in BY_FAMILY.items() if family.startswith(start)), 0)


def first(section: Mapping[str, Any], *names: str) -> int:
    """The first of these fields that is a whole number above 0; 0 when none is."""
    for name in names:
        value = section.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return 0


def _width(section: Mapping[str, Any]) -> int:
    # Qwen2-VL calls its width embed_dim and keeps hidden_size for the language model's
    return first(section, "embed_dim", "hidden_size", "vt_hidden_size", "d_model", "width", "n_embd")


def _encoder(section: Mapping[str, Any]) -> int:
    """A transformer encoder: projections of attention and a feed-forward network a layer, patches, positions."""
    width = _width(section)
    layers = first(section, "depth", "num_hidden_layers", "vt_num_hidden_layers", "encoder_layers", "layers")
    kind = str(section.get("model_type") or "")
    layers = layers or next((known for start, known in CLASS_LAYERS.items() if kind.startswith(start)), 0)
    layers += first(section, "num_global_layers")  # Llama 3.2 Vision
    inner = first(section, "intermediate_size", "vt_intermediate_size", "encoder_ffn_dim")
    inner = inner or int(width * float(section.get("mlp_ratio") or 4))
    if kind.startswith("glm4"):  # its intermediate_size is the projector's
        inner = first(section, "out_hidden_size") or inner
    gated = str(section.get("hidden_act")) == "silu" or kind.startswith(("pixtral", "gemma4"))
    heads = first(section, "num_attention_heads", "num_heads", "vt_num_attention_heads") or 1
    shared = first(section, "num_key_value_heads") or heads
    attention = 2 * width * width * (1 + shared / heads)
    biases = 9 * width + inner
    layer = attention + (3 if gated else 2) * width * inner + biases
    return int(layers * layer) + _patches(section, width) + _positions(section, width)


def _patches(section: Mapping[str, Any], width: int) -> int:
    size = section.get("patch_size")
    size = size[0] if isinstance(size, list) and size else size
    if not isinstance(size, int):
        return 0
    return 3 * size * size * width * (first(section, "temporal_patch_size", "patch_temporal") or 1)


def _positions(section: Mapping[str, Any], width: int) -> int:
    """Learned ones; the towers that rotate have none."""
    table = first(section, "position_embedding_size")
    if table:  # Gemma 4: one table for rows, one for columns
        return 2 * table * width
    counted = first(section, "num_position_embeddings", "max_source_positions")
    grid = first(section, "pos_emb_height") * first(section, "pos_emb_width")
    size, patch = first(section, "image_size"), first(section, "patch_size")
    learned = str(section.get("model_type") or "").startswith(("siglip", "clip", "internvl", "llama4", "mllama"))
    if not counted and not grid and learned and size and patch:
        counted = (size // patch) ** 2
    return (counted or grid) * width


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
        width = first(section, "embed_dim", "hidden_size") or width
        inner = (3 if str(section.get("hidden_act")) == "silu" else 2) * (
            first(section, "intermediate_size") or inner // 3
        )
    return 16384, 4 * (inner + 8 * width) * 2
