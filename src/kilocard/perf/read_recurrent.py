"""Layers with a state of fixed size: linear attention in its variants, and Mamba-2."""

from __future__ import annotations

from kilocard.perf.config_fields import Fields, whole
from kilocard.perf.layer_kinds import LINEAR, layer_kinds, spread
from kilocard.perf.layers import Linear, Mamba, Mixer
from kilocard.perf.read_attention import attention


def with_linear(fields: Fields, softmax: list[Mixer | None], hidden: int) -> list[Mixer | None]:
    """Replaces the layers that are linear attention, if any."""
    layers = len(softmax)
    linear = _linear_layers(fields, layers)
    if not linear:
        return softmax
    inner = fields.mapping("linear_attn_config")
    if inner is not None:  # Kimi-Linear: heads of one size for q, k and v
        usual = {"num_heads": 32, "head_dim": 128, "short_conv_kernel_size": 4}
        heads, dim, kernel = (whole(f"linear_attn_config.{key}", inner.get(key) or usual[key]) for key in usual)
        mixer = Linear(heads, heads, dim, dim, kernel, delta=True)
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


def lightning(fields: Fields, hidden: int, layers: int) -> list[Mixer | None]:
    """MiniMax-01: a square state of 32 bits a head, no convolution; every eighth layer is softmax attention."""
    softmax = attention(fields, hidden)
    heads, dim = softmax.heads, softmax.head_dim
    linear = Linear(heads, heads, dim, dim, conv_kernel=1)
    listed = fields.sequence("attn_type_list")
    kinds = layer_kinds(fields, layers) if listed is None else [LINEAR if not each else "full" for each in listed]
    if len(kinds) < layers or LINEAR not in kinds:
        fields.problems.append(
            "attn_type_list is missing: it says which layers are linear attention (0) and which not (1)"
        )
        return [None] * layers
    return [linear if kind == LINEAR else softmax for kind in kinds[:layers]]


def _linear_layers(fields: Fields, layers: int) -> set[int]:
    inner = fields.mapping("linear_attn_config")
    if inner is not None and isinstance(inner.get("kda_layers"), list):  # counted from 1
        return {whole("linear_attn_config.kda_layers", layer) - 1 for layer in inner["kda_layers"]}
    full = fields.optional("linear_attn_full_layers")
    if full:
        kinds = spread({LINEAR: layers - full, "full_attention": full})
    elif fields.sequence("layer_types") or fields.mapping("layer_type_counts"):
        kinds = layer_kinds(fields, layers)
    else:
        interval = fields.optional("full_attention_interval") or (4 if fields.raw("linear_num_value_heads") else 0)
        kinds = [LINEAR if interval and (i + 1) % interval else "full_attention" for i in range(layers)]
    return {i for i, kind in enumerate(kinds) if kind == LINEAR}


def with_mamba(fields: Fields, hidden: int, layers: int) -> list[Mixer | None]:
    """Bamba, Granite 4: Mamba-2 layers but for those that are named as attention. Falcon H1 has both in every layer,
    side by side: two blocks, of which the second brings the feed-forward network."""
    mamba = Mamba(
        heads=fields.size("mamba_n_heads"),
        head_dim=fields.size("mamba_d_head"),
        state=fields.size("mamba_d_state"),
        groups=fields.size("mamba_n_groups"),
        conv_kernel=fields.optional("mamba_d_conv") or 4,
        state_bytes=_state_bytes(fields, 2),
    )
    softmax = attention(fields, hidden)
    if fields.is_family("FalconH1"):
        return [mamba, softmax] * layers
    kinds = fields.sequence("layer_types", "layers_block_type")
    if kinds is None:
        named = fields.sequence("attn_layer_indices")
        if named is None:
            fields.assume("every layer is Mamba, as the class has it where layer_types does not name attention")
        return [softmax if i in set(named or ()) else mamba for i in range(layers)]
    return [softmax if "attention" in str(kind) and kind != LINEAR else mamba for kind in kinds[:layers]]


def by_pattern(fields: Fields, hidden: int, pattern: str) -> list[Mixer | None]:
    softmax: Mixer = attention(fields, hidden)
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
    mixers = {"M": mamba, "*": softmax}
    return [mixers.get(letter) for letter in pattern]


def _state_bytes(fields: Fields, default: int) -> int:
    """Of the recurrent state: configs say "float32" where 16 bits lose too much."""
    stated = fields.raw("mamba_ssm_dtype", "mamba_ssm_cache_dtype")
    return {"float32": 4, "bfloat16": 2, "float16": 2}.get(str(stated), default)
