"""Which mixer each layer has: attention (full, window, chunked), MLA, linear attention, Mamba, compressed."""

from __future__ import annotations

from dataclasses import replace

from kilocard.perf.config_fields import Fields
from kilocard.perf.layers import Attention, Compressed, Latent, Linear, Mamba, Mixer

QKV_BIAS = ("Qwen2", "GptOss", "GPT2", "Bloom", "OPT", "Phi", "GPTNeoX", "Starcoder2")
#: layers of Nemotron-H's pattern: M Mamba, * attention, - feed-forward, E experts
PATTERN_MIXERS = "M*"
SLIDING, CHUNKED, LINEAR = "sliding_attention", "chunked_attention", "linear_attention"


#: families whose layers are made of what this page has no words for
UNKNOWN = ("Jamba", "FalconH1", "Zamba", "Lfm2", "RecurrentGemma", "Rwkv")


def read_mixers(fields: Fields, hidden: int) -> list[Mixer | None]:
    if fields.is_family(*UNKNOWN):
        fields.problems.append(
            f"{fields.family}: its layers (short convolutions, Mamba 1, or two mixers side by side) are not modelled"
        )
        return [None]
    pattern = layer_pattern(fields)
    if pattern:
        return _by_pattern(fields, hidden, pattern)
    if fields.is_family("NemotronH"):
        fields.problems.append("hybrid_override_pattern is missing: it says which layers are Mamba and which attention")
        return [None]
    layers = fields.size("num_hidden_layers", "n_layer", "n_layers", "num_layers")
    if fields.is_family("DeciLM"):
        return _by_block(fields, hidden)
    if fields.is_family("DeepseekV4"):
        return _compressed(fields, layers)
    if fields.optional("mamba_n_heads"):
        return _with_mamba(fields, hidden, layers)
    if fields.optional("kv_lora_rank"):
        latent = _latent(fields)
        return _with_linear(fields, [latent] * layers, hidden)
    if fields.optional("linear_num_value_heads"):
        return _with_linear(fields, [_attention(fields, hidden, gated=True)] * layers, hidden)
    own = layers - (fields.optional("num_kv_shared_layers") or 0)
    mixers = [_windowed(fields, hidden, kind) for kind in layer_kinds(fields, layers)]
    return [mixer if i < own else replace(mixer, cached=False) for i, mixer in enumerate(mixers)]


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
        return [str(kind) for kind in listed[:layers]]
    counts = fields.mapping("layer_type_counts")
    if counts is not None:
        return spread({str(kind): int(count) for kind, count in counts.items()})
    if fields.raw("attention_chunk_size") and fields.is_family("Llama4"):
        interval = fields.optional("no_rope_layer_interval") or 4
        return ["full_attention" if (i + 1) % interval == 0 else CHUNKED for i in range(layers)]
    hybrid = fields.sequence("hybrid_layer_pattern")
    if hybrid is not None:
        return [SLIDING if each else "full_attention" for each in hybrid]
    counted = fields.mapping("hybrid_layer_pattern_counts")
    if counted is not None:
        return spread({SLIDING: int(counted.get("1", 0)), "full_attention": int(counted.get("0", 0))})
    period = fields.optional("sliding_window_pattern", "_sliding_window_pattern")
    if period and fields.raw("sliding_window"):
        return [SLIDING if (i + 1) % period else "full_attention" for i in range(layers)]
    return [SLIDING if _window_everywhere(fields) else "full_attention"] * layers


def spread(counts: dict[str, int]) -> list[str]:
    """Counts without an order: the rarer kind comes at even distances, last of its stretch, as models are built."""
    layers = sum(counts.values())
    common, *rest = sorted(counts, key=lambda kind: -counts[kind])
    kinds = [common] * layers
    for kind in rest:
        for place in range(1, counts[kind] + 1):
            kinds[place * layers // counts[kind] - 1] = kind
    return kinds


def _window_everywhere(fields: Fields) -> bool:
    """Mistral 7B v0.1: every layer has the window. Qwen2 states a window and switches it off."""
    window, longest = fields.optional("sliding_window"), fields.optional("max_position_embeddings")
    if not window or not fields.flag("use_sliding_window", True):
        return False
    if not fields.is_family("Mistral", "Mixtral"):
        return False
    return longest is None or window < longest


def _attention(fields: Fields, hidden: int, *, gated: bool = False) -> Attention:
    heads = fields.size("num_attention_heads", "n_head", "n_heads")
    kv_heads = 1 if fields.flag("multi_query") and not fields.flag("new_decoder_architecture") else None
    kv_heads = kv_heads or fields.optional("num_key_value_heads", "num_kv_heads", "multi_query_group_num", "n_head_kv")
    inner = fields.mapping("attn_config")
    if kv_heads is None and inner is not None:
        kv_heads = int(inner.get("kv_n_heads") or heads)
    head_dim = fields.optional("head_dim", "kv_channels", "attention_head_dim") or max(1, hidden // heads)
    return Attention(
        heads=heads,
        kv_heads=kv_heads or heads,
        head_dim=head_dim,
        value_dim=fields.optional("v_head_dim") or head_dim,
        bias=fields.flag("attention_bias", fields.is_family(*QKV_BIAS)),
        gated=gated,
    )


def _windowed(fields: Fields, hidden: int, kind: str) -> Attention:
    base = _attention(fields, hidden)
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


def _latent(fields: Fields) -> Latent:
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


def _with_linear(fields: Fields, softmax: list[Mixer | None], hidden: int) -> list[Mixer | None]:
    """Replaces the layers that are linear attention, if any."""
    layers = len(softmax)
    linear = _linear_layers(fields, layers)
    if not linear:
        return softmax
    inner = fields.mapping("linear_attn_config")
    if inner is not None:  # Kimi-Linear: heads of one size for q, k and v
        heads, dim = int(inner.get("num_heads", 32)), int(inner.get("head_dim", 128))
        mixer = Linear(heads, heads, dim, dim, int(inner.get("short_conv_kernel_size", 4)), delta=True)
    elif fields.optional("linear_num_heads"):
        heads, dim = fields.size("linear_num_heads"), fields.size("linear_head_dim")
        mixer = Linear(heads, heads, dim, dim, fields.optional("linear_conv_kernel_dim") or 4, delta=True)
    elif fields.optional("linear_num_value_heads"):
        mixer = Linear(
            key_heads=fields.size("linear_num_key_heads"),
            value_heads=fields.size("linear_num_value_heads"),
            key_dim=fields.size("linear_key_head_dim"),
            value_dim=fields.size("linear_value_head_dim"),
            conv_kernel=fields.optional("linear_conv_kernel_dim") or 4,
            state_bytes=_state_bytes(fields, 4 if fields.is_family("Qwen3_5") else 2),
        )
    else:
        heads = fields.size("num_attention_heads")
        mixer = Linear(heads, heads, 128, 128, 4, delta=True)
        fields.assume(f"linear attention layers have {heads} heads of 128 and a convolution of 4, as Kimi-Linear has")
    return [mixer if i in linear else each for i, each in enumerate(softmax)]


def _linear_layers(fields: Fields, layers: int) -> set[int]:
    inner = fields.mapping("linear_attn_config")
    if inner is not None and isinstance(inner.get("kda_layers"), list):  # counted from 1
        return {int(layer) - 1 for layer in inner["kda_layers"]}
    full = fields.optional("linear_attn_full_layers")
    if full:
        kinds = spread({LINEAR: layers - full, "full_attention": full})
    elif fields.sequence("layer_types") or fields.mapping("layer_type_counts"):
        kinds = layer_kinds(fields, layers)
    else:
        interval = fields.optional("full_attention_interval") or (4 if fields.raw("linear_num_value_heads") else 0)
        kinds = [LINEAR if interval and (i + 1) % interval else "full_attention" for i in range(layers)]
    return {i for i, kind in enumerate(kinds) if kind == LINEAR}


def _with_mamba(fields: Fields, hidden: int, layers: int) -> list[Mixer | None]:
    """Bamba, Granite 4: Mamba-2 layers but for those that are named as attention."""
    mamba = Mamba(
        heads=fields.size("mamba_n_heads"),
        head_dim=fields.size("mamba_d_head"),
        state=fields.size("mamba_d_state"),
        groups=fields.size("mamba_n_groups"),
        conv_kernel=fields.optional("mamba_d_conv") or 4,
        state_bytes=_state_bytes(fields, 2),
    )
    attention = _attention(fields, hidden)
    kinds = fields.sequence("layer_types", "layers_block_type")
    if kinds is None:
        named = set(fields.sequence("attn_layer_indices") or ())
        return [attention if i in named else mamba for i in range(layers)]
    return [attention if "attention" in str(kind) and kind != LINEAR else mamba for kind in kinds[:layers]]


def _by_pattern(fields: Fields, hidden: int, pattern: str) -> list[Mixer | None]:
    attention: Mixer = _attention(fields, hidden)
    if not fields.optional("mamba_num_heads"):
        fields.problems.append("mamba_num_heads is missing: the state of the Mamba layers can't be sized")
        return [None] * len(pattern)
    mamba: Mixer = Mamba(
        heads=fields.size("mamba_num_heads"),
        head_dim=fields.size("mamba_head_dim"),
        state=fields.size("ssm_state_size"),
        groups=fields.size("n_groups", "mamba_n_groups"),
        conv_kernel=fields.optional("conv_kernel", "mamba_d_conv") or 4,
        state_bytes=_state_bytes(fields, 4),
    )
    mixers = {"M": mamba, "*": attention}
    return [mixers.get(letter) for letter in pattern]


def _state_bytes(fields: Fields, default: int) -> int:
    """Of the recurrent state: configs say "float32" where 16 bits lose too much."""
    stated = fields.raw("mamba_ssm_dtype", "mamba_ssm_cache_dtype")
    return {"float32": 4, "bfloat16": 2, "float16": 2}.get(str(stated), default)


def _by_block(fields: Fields, hidden: int) -> list[Mixer | None]:
    """DeciLM (Nemotron Super): each layer has its own number of KV heads, or no attention at all."""
    blocks = fields.sequence("block_configs")
    if blocks is None:
        fields.problems.append("block_configs is missing: the layers of this model differ, and only that says how")
        return [None]
    heads = fields.size("num_attention_heads")
    head_dim = fields.optional("head_dim") or max(1, hidden // heads)
    mixers: list[Mixer | None] = []
    for block in blocks:
        group = (block.get("attention") or {}).get("n_heads_in_group")
        mixers.append(Attention(heads, heads // int(group), head_dim, head_dim) if group else None)
    return mixers


def _compressed(fields: Fields, layers: int) -> list[Mixer | None]:
    """DeepSeek V4: a ratio of compression for each layer; 0 is the window alone."""
    listed = fields.sequence("compress_ratios")
    counts = fields.mapping("compress_ratio_counts")
    kinds = fields.sequence("layer_types")
    if listed is not None:
        ratios = [int(each) for each in listed[:layers]]
    elif kinds is not None:
        by_kind = {"compressed_sparse_attention": 4, "heavily_compressed_attention": 128}
        ratios = [by_kind.get(str(kind), 0) for kind in kinds[:layers]]
    elif counts is not None:
        known = {str(ratio): int(count) for ratio, count in counts.items()}
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
