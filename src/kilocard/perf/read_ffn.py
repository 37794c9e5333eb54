"""Which feed-forward network each layer has: dense, or a mixture of experts and what runs beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kilocard.core.errors import SpecError
from kilocard.perf.config_fields import Fields, whole
from kilocard.perf.layer_kinds import layer_pattern
from kilocard.perf.layers import Dense, Experts, FeedForward

#: families whose feed-forward network has two matrices, not three
UNGATED = (
    "PhiFor", "GPT2", "GPTNeoX", "GPTJ", "OPT", "Bloom", "FalconFor", "Starcoder2", "Nemotron", "GPTBigCode", "Mpt",
    "MPT", "Arcee", "Apertus", "CodeGen", "Persimmon", "Fuyu", "Jais2",
)  # fmt: skip
#: families where a layer with experts runs a dense network beside them
DENSE_BESIDE = ("Gemma4",)


def read_ffns(fields: Fields, hidden: int, layers: int) -> list[FeedForward | None]:
    pattern = layer_pattern(fields)
    gated = not fields.is_family(*UNGATED)
    if fields.is_family("DeciLM"):
        return _by_block(fields, hidden, layers)
    experts = _experts(fields, gated=gated)
    if fields.is_family("NemotronH"):
        if not pattern:
            return [None] * layers
        width = fields.size("intermediate_size")
        kinds: dict[str, FeedForward | None] = {"-": Dense(width, gated=False), "E": experts}
        return [kinds.get(letter) for letter in pattern]
    if fields.is_family("FalconH1"):
        return [None, _dense(fields, hidden, gated=gated)] * (layers // 2)
    widths = fields.sequence("intermediate_size")
    if widths is not None and experts is None:  # Gemma 3n may give every layer a width of its own
        if len(widths) < layers or not all(isinstance(width, int) and width > 0 for width in widths):
            fields.problems.append(f"intermediate_size: {layers} whole numbers were expected, one for each layer")
            return [None] * layers
        return [Dense(int(width), gated) for width in widths[:layers]]
    if experts is None:
        plain, wide_from = _dense(fields, hidden, gated=gated), _wide_from(fields, layers)
        wide = replace(plain, intermediate=2 * plain.intermediate)
        return [wide if i >= wide_from else plain for i in range(layers)]
    sparse = [_is_sparse(fields, i) for i in range(layers)]
    dense = None if all(sparse) else _dense(fields, hidden, gated=gated)
    return [experts if each else dense for each in sparse]


def _wide_from(fields: Fields, layers: int) -> int:
    """The small Gemma 4 make the networks of the layers that share a cache twice as wide; `layers` = none does."""
    shared = fields.optional("num_kv_shared_layers") or 0
    return layers - shared if fields.flag("use_double_wide_mlp") else layers


def _dense(fields: Fields, hidden: int, *, gated: bool) -> Dense:
    width = fields.optional("intermediate_size_mlp") if fields.is_family("Llama4") else None
    width = width or fields.optional(
        "intermediate_size", "n_inner", "ffn_hidden_size", "ffn_dim", "shared_intermediate_size"
    )
    if not width:
        if gated:
            width = fields.size("intermediate_size")
        else:
            width = (fields.optional("expansion_ratio") or 4) * hidden
            if width != 4 * hidden:
                return Dense(width, gated)
            fields.assume(f"the feed-forward network is 4 × {hidden} wide, as its family's is")
    return Dense(width, gated)


def _experts(fields: Fields, *, gated: bool) -> Experts | None:
    inner = fields.mapping("ffn_config") or {}
    count = fields.optional("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
    count = count or whole("ffn_config.moe_num_experts", inner.get("moe_num_experts") or 0)
    if not count:
        return None
    top_k = fields.optional(
        "num_experts_per_tok", "num_experts_per_token", "top_k_experts", "moe_top_k", "moe_k", "moe_topk"
    )
    top_k = top_k or whole("ffn_config.moe_top_k", inner.get("moe_top_k") or 0)
    if not top_k:
        top_k = 8
        fields.assume("8 experts for each token, as most models of this size have: the config does not say")
    width = fields.optional("moe_intermediate_size", "expert_intermediate_size", "intermediate_size")
    width = width or whole("ffn_config.ffn_hidden_size", inner.get("ffn_hidden_size") or 0)
    width = width or fields.size("moe_intermediate_size")
    return Experts(
        count=count,
        top_k=top_k,
        intermediate=width,
        gated=gated,
        shared_intermediate=_shared(fields, width),
        dense_intermediate=fields.optional("intermediate_size") or 0 if fields.is_family(*DENSE_BESIDE) else 0,
        latent=fields.optional("moe_latent_size", "routed_expert_hidden_size") or 0,
        bias=fields.is_family("GptOss"),
    )


def _shared(fields: Fields, width: int) -> int:
    stated = fields.optional(
        "shared_expert_intermediate_size",
        "moe_shared_expert_intermediate_size",
        "share_expert_dim",
        "shared_intermediate_size",
    )
    if stated is not None:
        return stated
    return (
        fields.optional("n_shared_experts", "num_shared_experts", "moe_num_shared_experts")
        or (1 if fields.is_family("Llama4") else 0)
    ) * width


def _is_sparse(fields: Fields, layer: int) -> bool:
    """Whether this layer has experts."""
    kinds = fields.sequence("mlp_layer_types")
    if kinds is not None:
        return layer < len(kinds) and kinds[layer] != "dense"
    if layer > (fields.optional("moe_layer_end_index") or layer):
        return False
    if layer < (fields.optional("first_k_dense_replace", "moe_layer_start_index", "num_dense_layers") or 0):
        return False
    if layer in (fields.sequence("mlp_only_layers") or ()):
        return False
    frequency = fields.raw("moe_layer_freq")
    if isinstance(frequency, list):
        return layer < len(frequency) and bool(frequency[layer])
    listed = fields.raw("moe_layers", "moe_layers_enum")
    if isinstance(listed, str) and listed:
        return str(layer) in listed.split(",")
    if isinstance(listed, list) and listed:
        return layer in listed
    maverick = fields.is_family("Llama4") and (fields.optional("num_local_experts", "num_experts") or 0) > 16
    if maverick and "interleave_moe_layer_step" not in fields.config:
        return layer % 2 == 1  # the larger Llama 4 has experts in every other layer, which its class does not know
    step = (
        fields.optional("decoder_sparse_step", "interleave_moe_layer_step", "moe_every_n_layers", "moe_layer_interval")
        or 1
    )
    return (layer + 1) % step == 0


def _by_block(fields: Fields, hidden: int, layers: int) -> list[FeedForward | None]:
    ffns: list[FeedForward | None] = []
    for block in fields.sequence("block_configs") or ():
        ffn = block.get("ffn") if isinstance(block, Mapping) else None
        sized = isinstance(ffn, Mapping) and (ffn.get("ffn_mult") or ffn.get("intermediate_size"))
        if not isinstance(ffn, Mapping) or ffn.get("no_op") or not sized:
            ffns.append(None)
            continue
        width = ffn.get("intermediate_size")
        if not width:  # NVIDIA rounds two thirds of the multiple up to 256
            multiple = ffn["ffn_mult"]
            if not isinstance(multiple, int | float) or not 0 < multiple < 1000:
                raise SpecError(f"block_configs.ffn.ffn_mult: {multiple!r} is not a multiple of the hidden size")
            width = -(-int(2 * multiple * hidden / 3) // 256) * 256
        ffns.append(Dense(whole("block_configs.ffn.intermediate_size", width)))
    return ffns or [None] * layers
