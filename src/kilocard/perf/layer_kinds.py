"""Which kind each layer is of: full, sliding, chunked or linear attention; in words, by a period, or only counted."""

from __future__ import annotations

from kilocard.perf.config_fields import Fields, counts

SLIDING, CHUNKED, LINEAR = "sliding_attention", "chunked_attention", "linear_attention"
KINDS = {"full_attention", "attention", "indexed_attention", SLIDING, CHUNKED, LINEAR}


def layer_pattern(fields: Fields) -> str:
    """Nemotron-H's letters, one a layer; "" for other models."""
    pattern = fields.raw("hybrid_override_pattern")
    if isinstance(pattern, str) and pattern:
        return pattern
    listed = fields.sequence("layers_block_type")
    if listed is None or not fields.is_family("NemotronH"):
        return ""
    letters = {"mamba": "M", "linear_attention": "M", "attention": "*", "full_attention": "*", "moe": "E"}
    return "".join(letters.get(str(kind), "-") for kind in listed)


def layer_kinds(fields: Fields, layers: int) -> list[str]:
    """full_attention, sliding_attention, chunked_attention or linear_attention for each layer."""
    listed = fields.sequence("layer_types")
    if listed is not None:
        if len(listed) < layers:
            fields.problems.append(f"layer_types: {len(listed)} entries for {layers} layers")
        strange = sorted({str(kind) for kind in listed} - KINDS)
        if strange and not fields.is_family("DeepseekV4"):
            fields.problems.append(f"layer_types: {', '.join(strange)} is no kind of layer that is known here")
        return [str(kind) for kind in listed[:layers]]
    counted = fields.mapping("layer_type_counts")
    if counted is not None:
        return spread(counts("layer_type_counts", counted))
    if fields.raw("attention_chunk_size") and fields.is_family("Llama4"):
        interval = fields.optional("no_rope_layer_interval") or 4
        return ["full_attention" if (i + 1) % interval == 0 else CHUNKED for i in range(layers)]
    hybrid = fields.sequence("hybrid_layer_pattern")
    if hybrid is not None:
        return [SLIDING if each else "full_attention" for each in hybrid]
    counted = fields.mapping("hybrid_layer_pattern_counts")
    if counted is not None:
        known = counts("hybrid_layer_pattern_counts", counted)
        return spread({SLIDING: known.get("1", 0), "full_attention": known.get("0", 0)})
    period = fields.optional("sliding_window_pattern", "_sliding_window_pattern")
    if period and fields.raw("sliding_window"):
        kinds = [SLIDING if (i + 1) % period else "full_attention" for i in range(layers)]
        if fields.is_family("Gemma4"):
            kinds[-1] = "full_attention"  # its class makes the last layer see everything
        return kinds
    return [SLIDING if _window_everywhere(fields) else "full_attention"] * layers


def spread(found: dict[str, int]) -> list[str]:
    """Counts without an order: the rarer kind comes at even distances, last of its stretch, as models are built."""
    layers = sum(found.values())
    common, *rest = sorted(found, key=lambda kind: -found[kind])
    kinds = [common] * layers
    for kind in rest:
        for place in range(1, found[kind] + 1):
            kinds[place * layers // found[kind] - 1] = kind
    return kinds


def _window_everywhere(fields: Fields) -> bool:
    """Mistral 7B v0.1, Phi-3 mini, StarCoder2: every layer has the window. Qwen2 states one and switches it off."""
    window, longest = fields.optional("sliding_window"), fields.optional("max_position_embeddings")
    if not window or not fields.flag("use_sliding_window", True):
        return False
    if not fields.is_family("Mistral", "Mixtral", "Phi3", "PhiMoE", "PhimoE", "Starcoder2"):
        return False
    return longest is None or window < longest
