"""Which mixer each layer has: attention (full, window, chunked), MLA, linear attention, Mamba, compressed."""

from __future__ import annotations

from dataclasses import replace

from kilocard.perf.config_fields import Fields
from kilocard.perf.layer_kinds import layer_kinds, layer_pattern
from kilocard.perf.layers import Mixer
from kilocard.perf.read_attention import attention, by_block, compressed, latent, overridden, windowed
from kilocard.perf.read_recurrent import by_pattern, lightning, with_linear, with_mamba

#: families whose layers are made of what this page has no words for
UNKNOWN = ("Jamba", "Zamba", "Lfm2", "RecurrentGemma", "Rwkv")


def read_mixers(fields: Fields, hidden: int) -> list[Mixer | None]:
    if fields.is_family(*UNKNOWN):
        fields.problems.append(
            f"{fields.family}: its layers (short convolutions, Mamba 1, or two mixers side by side) are not modelled"
        )
        return [None]
    pattern = layer_pattern(fields)
    if pattern:
        return by_pattern(fields, hidden, pattern)
    if fields.is_family("NemotronH"):
        fields.problems.append("hybrid_override_pattern is missing: it says which layers are Mamba and which attention")
        return [None]
    layers = fields.layers("num_hidden_layers", "n_layer", "n_layers", "num_layers")
    if fields.is_family("DeciLM"):
        return by_block(fields, hidden)
    if fields.is_family("DeepseekV4"):
        return compressed(fields, layers)
    if fields.optional("mamba_n_heads"):
        return with_mamba(fields, hidden, layers)
    if fields.optional("kv_lora_rank"):
        return with_linear(fields, [latent(fields)] * layers, hidden)
    if fields.optional("linear_num_value_heads"):
        return with_linear(fields, [attention(fields, hidden, gated=fields.is_family("Qwen"))] * layers, hidden)
    if fields.is_family("MiniMaxText01", "MiniMaxM1", "MiniMaxFor"):
        return lightning(fields, hidden, layers)
    own = layers - (fields.optional("num_kv_shared_layers") or 0)
    mixers = [windowed(fields, hidden, kind) for kind in layer_kinds(fields, layers)]
    mixers = overridden(fields, mixers)
    return [mixer if i < own else replace(mixer, cached=False) for i, mixer in enumerate(mixers)]
