"""Softmax attention of a layer from a config's fields: with K and V of its own, latent, or compressed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kilocard.perf.config_fields import Fields, counts, whole
from kilocard.perf.layer_kinds import CHUNKED, SLIDING, spread
from kilocard.perf.layers import Attention, Compressed, Latent, Mixer

#: what `per_layer_config` may say of one layer
_OF_A_LAYER = ("head_dim", "num_attention_heads", "num_key_value_heads")
QKV_BIAS = ("Qwen2", "GptOss", "GPT2", "Bloom", "OPT", "Phi", "GPTNeoX", "Starcoder2")


def attention(fields: Fields, hidden: int, *, gated: bool = False) -> Attention:
    heads = fields.size("num_attention_heads", "n_head", "n_heads")
    kv_heads = 1 if fields.flag("multi_query") and not fields.flag("new_decoder_architecture") else None
    kv_heads = kv_heads or fields.optional("num_key_value_heads", "num_kv_heads", "multi_query_group_num", "n_head_kv")
    inner = fields.mapping("attn_config")
    if kv_heads is None and inner is not None:
        kv_heads = whole("attn_config.kv_n_heads", inner.get("kv_n_heads") or heads)
    head_dim = fields.optional("head_dim", "kv_channels", "attention_head_dim") or max(1, hidden // heads)
    return Attention(
        heads=heads,
        kv_heads=kv_heads or heads,
        head_dim=head_dim,
        value_dim=fields.optional("v_head_dim") or head_dim,
        bias=fields.flag("attention_bias", fields.is_family(*QKV_BIAS)),
        gated=gated or fields.is_family("Afmoe"),
    )


def windowed(fields: Fields, hidden: int, kind: str) -> Attention:
    base = attention(fields, hidden)
    if kind == CHUNKED:
        return replace(base, window=fields.size("attention_chunk_size"), chunked=True)
    if kind != SLIDING:
        heads, head_dim = fields.optional("num_global_key_value_heads"), fields.optional("global_head_dim")
        if head_dim:  # Gemma 4: few wide heads in the global layers, whose keys are values too
            shared = fields.flag("attention_k_eq_v", heads is not None)
            return replace(
                base, kv_heads=heads or base.kv_heads, head_dim=head_dim, value_dim=head_dim, shared_kv=shared
            )
        return base
    return replace(
        base,
        window=fields.size("sliding_window", "sliding_window_size"),
        kv_heads=fields.optional("swa_num_key_value_heads") or base.kv_heads,
        head_dim=fields.optional("swa_head_dim") or base.head_dim,
        value_dim=fields.optional("swa_v_head_dim") or base.value_dim,
    )


def overridden(fields: Fields, mixers: list[Attention]) -> list[Attention]:
    """transformers 5 writes what is special about a layer under its number ("05": {"head_dim": 512})."""
    special = {
        int(number): own
        for number, own in (fields.mapping("per_layer_config") or {}).items()
        if isinstance(own, Mapping) and str(number).isdecimal()
    }
    for number, own in special.items():
        if number < len(mixers):
            base = mixers[number]
            stated = {key: whole(f"per_layer_config.{number}.{key}", own.get(key) or 0) for key in _OF_A_LAYER}
            head_dim = stated["head_dim"] or base.head_dim
            mixers[number] = replace(
                base,
                heads=stated["num_attention_heads"] or base.heads,
                kv_heads=stated["num_key_value_heads"] or base.kv_heads,
                head_dim=head_dim,
                value_dim=head_dim if "head_dim" in own else base.value_dim,
                shared_kv=base.shared_kv or bool(fields.flag("attention_k_eq_v") and base.window is None),
            )
    listed = "num_attention_heads_per_layer"
    heads = fields.sequence(listed)
    if heads is not None:  # Laguna: window layers have more
        mixers = [replace(mixer, heads=whole(listed, own)) for mixer, own in zip(mixers, heads, strict=False)]
    return mixers


def latent(fields: Fields) -> Latent:
    return Latent(
        heads=fields.size("num_attention_heads"),
        query_rank=fields.optional("q_lora_rank") or 0,
        kv_rank=fields.size("kv_lora_rank"),
        nope_dim=fields.size("qk_nope_head_dim"),
        rope_dim=fields.size("qk_rope_head_dim"),
        value_dim=fields.size("v_head_dim"),
        index_heads=fields.optional("index_n_heads") or 0,
        index_dim=fields.optional("index_head_dim") or 0,
    )


def by_block(fields: Fields, hidden: int) -> list[Mixer | None]:
    """DeciLM (Nemotron Super): each layer has its own number of KV heads, or no attention at all."""
    blocks = fields.sequence("block_configs")
    if blocks is None:
        fields.problems.append("block_configs is missing: the layers of this model differ, and only that says how")
        return [None]
    heads = fields.size("num_attention_heads")
    head_dim = fields.optional("head_dim") or max(1, hidden // heads)
    mixers: list[Mixer | None] = []
    for block in blocks:
        own = block.get("attention") if isinstance(block, Mapping) else None
        group = own.get("n_heads_in_group") if isinstance(own, Mapping) else None
        each = heads // whole("block_configs.attention.n_heads_in_group", group) if group else 0
        mixers.append(Attention(heads, each, head_dim, head_dim) if each else None)
    return mixers


def compressed(fields: Fields, layers: int) -> list[Mixer | None]:
    """DeepSeek V4: a ratio of compression for each layer; 0 is the window alone."""
    listed = fields.sequence("compress_ratios")
    counted = fields.mapping("compress_ratio_counts")
    kinds = fields.sequence("layer_types")
    if listed is not None:
        ratios = [whole("compress_ratios", each) for each in listed[:layers]]
    elif kinds is not None:
        by_kind = {"compressed_sparse_attention": 4, "heavily_compressed_attention": 128}
        ratios = [by_kind.get(str(kind), 0) for kind in kinds[:layers]]
    elif counted is not None and all(str(ratio).isdecimal() for ratio in counted):
        known = counts("compress_ratio_counts", counted)
        known["0"] = known.get("0", 0) - (sum(known.values()) - layers)  # the draft layer is listed too
        ratios = [int(kind) for kind in spread({ratio: count for ratio, count in known.items() if count > 0})]
    else:
        fields.problems.append("compress_ratios is missing: it says how far each layer compresses its cache")
        return [None] * layers
    heads, head_dim = fields.size("num_attention_heads"), fields.size("head_dim")
    index_heads, index_dim = fields.optional("index_n_heads") or 0, fields.optional("index_head_dim") or 0
    mixers: list[Mixer | None] = []
    for ratio in ratios:
        sparse = ratio == 4  # only these layers choose among their compressed vectors
        mixers.append(
            Compressed(
                heads=heads,
                head_dim=head_dim,
                rope_dim=fields.optional("qk_rope_head_dim") or 64,
                query_rank=fields.size("q_lora_rank"),
                window=fields.size("sliding_window"),
                ratio=ratio,
                index_heads=index_heads if sparse else 0,
                index_dim=index_dim if sparse else 0,
                output_rank=fields.optional("o_lora_rank") or 1024,
                output_groups=fields.optional("o_groups") or 8,
            )
        )
    return mixers
