"""Parameters of a model, part by part, as one GPU of a tensor-parallel group holds them.

The rules of sharding are vLLM's (model_executor/layers/linear.py, vocab_parallel_embedding.py, fused_moe/layer.py):
column- and row-parallel matrices are divided; KV heads fewer than GPUs are repeated; low-rank projections, routers
and norms are on every GPU; the vocabulary is padded to a multiple of 64 and divided.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kilocard.perf.layers import (
    Attention,
    Block,
    Compressed,
    Dense,
    Experts,
    FeedForward,
    Latent,
    Linear,
    Mamba,
    Mixer,
)

if TYPE_CHECKING:
    from kilocard.perf.architecture import Architecture

#: vLLM pads the vocabulary to a multiple of this
VOCABULARY_PADDING = 64

#: Parts by name; a quantisation says which of them it leaves in 16 bits.
ATTENTION, MLP, EXPERTS, SHARED, ROUTER, NORM = "attention", "mlp", "experts", "shared_experts", "router", "norm"
LINEAR, SMALL, EMBEDDING, HEAD, TOWER = "linear_attention", "small", "embedding", "head", "tower"


@dataclass(frozen=True, slots=True)
class Part:
    """So many elements of one sort on one GPU."""

    name: str
    elements: float


@dataclass(frozen=True, slots=True)
class Split:
    """How many ways matrices are cut: `tensor` all of them, `expert` the experts by whole experts instead."""

    tensor: int = 1
    #: GPUs that share the experts out, 1 = experts are cut by `tensor` like any matrix
    expert: int = 1


def padded_vocabulary(vocab: int) -> int:
    return math.ceil(vocab / VOCABULARY_PADDING) * VOCABULARY_PADDING


def total(architecture: Architecture) -> int:
    whole = Split()
    elements = sum(part.elements for block in architecture.blocks for part in block_parts(block, architecture, whole))
    ends = architecture.vocab * architecture.hidden * (1 if architecture.tied else 2) + architecture.hidden
    return round(elements) + ends + architecture.tower_parameters + architecture.position_elements


def active(architecture: Architecture) -> int:
    whole, elements = Split(), 0.0
    for block in architecture.blocks:
        for part in block_parts(block, architecture, whole):
            share = 1.0
            if part.name == EXPERTS and isinstance(block.ffn, Experts):
                share = block.ffn.top_k / block.ffn.count
            elements += part.elements * share
    return round(elements) + architecture.vocab * architecture.hidden + architecture.hidden


def block_parts(block: Block, architecture: Architecture, split: Split) -> Iterator[Part]:
    """What one layer adds to one GPU."""
    hidden = architecture.hidden
    if block.mixer is not None:
        yield from _mixer_parts(block.mixer, hidden, split.tensor)
        yield Part(NORM, hidden)
    if block.ffn is not None:
        yield from _ffn_parts(block.ffn, hidden, split)
        yield Part(NORM, hidden)
    if architecture.per_layer_width:
        yield Part(SMALL, 3 * hidden * architecture.per_layer_width)
        yield Part(EMBEDDING, architecture.vocab * architecture.per_layer_width / split.tensor)


def end_parts(architecture: Architecture, tensor: int, *, first: bool, last: bool) -> Iterator[Part]:
    """Embedding, head and tower on one GPU of a stage. A tied embedding is on the first and on the last stage."""
    rows = padded_vocabulary(architecture.vocab) / tensor
    if first or (last and architecture.tied):
        yield Part(EMBEDDING, rows * architecture.hidden)
    if first and architecture.position_elements:
        yield Part(SMALL, architecture.position_elements)
    if last:
        yield Part(NORM, architecture.hidden)
        if not architecture.tied:
            yield Part(HEAD, rows * architecture.hidden)
    if first and architecture.tower_parameters:
        yield Part(TOWER, architecture.tower_parameters / tensor)


def _mixer_parts(mixer: Mixer, hidden: int, tensor: int) -> Iterator[Part]:
    match mixer:
        case Attention():
            yield from _attention(mixer, hidden, tensor)
        case Latent():
            yield from _latent(mixer, hidden, tensor)
        case Compressed():
            yield from _compressed(mixer, hidden, tensor)
        case Linear():
            yield from _linear(mixer, hidden, tensor)
        case Mamba():
            yield from _mamba(mixer, hidden, tensor)


def _attention(a: Attention, hidden: int, tensor: int) -> Iterator[Part]:
    heads, kv_heads = a.heads / tensor, max(1.0, a.kv_heads / tensor)
    query = heads * a.head_dim * (2 if a.gated else 1)
    key_value = kv_heads * (a.head_dim if a.shared_kv else a.head_dim + a.value_dim)
    yield Part(ATTENTION, hidden * (query + key_value + heads * a.value_dim))
    if a.bias:
        yield Part(SMALL, query + key_value)


def _latent(a: Latent, hidden: int, tensor: int) -> Iterator[Part]:
    heads, head_dim = a.heads / tensor, a.nope_dim + a.rope_dim
    query = a.query_rank * (hidden + heads * head_dim) if a.query_rank else hidden * heads * head_dim
    key_value = hidden * (a.kv_rank + a.rope_dim) + a.kv_rank * heads * (a.nope_dim + a.value_dim)
    yield Part(ATTENTION, query + key_value + heads * a.value_dim * hidden)
    if a.index_heads:
        yield Part(ATTENTION, a.query_rank * a.index_heads * a.index_dim + hidden * a.index_dim)
        yield Part(SMALL, hidden * a.index_heads)


def _compressed(a: Compressed, hidden: int, tensor: int) -> Iterator[Part]:
    width = a.heads * a.head_dim / tensor
    query = a.query_rank * (hidden + width) + hidden * a.head_dim
    output = width * a.output_rank + a.output_groups * a.output_rank * hidden / tensor
    yield Part(ATTENTION, query + output)
    if a.ratio:
        overlap = 2 if a.ratio == 4 else 1
        yield Part(SMALL, 2 * hidden * a.head_dim * overlap)
    if a.index_heads:
        yield Part(ATTENTION, a.query_rank * a.index_heads * a.index_dim)
        yield Part(SMALL, hidden * (4 * a.index_dim + a.index_heads))


def _linear(a: Linear, hidden: int, tensor: int) -> Iterator[Part]:
    keys, values = a.key_heads * a.key_dim / tensor, a.value_heads * a.value_dim / tensor
    gate = 2 * a.value_dim * (hidden + values) if a.delta else hidden * values
    yield Part(LINEAR, hidden * (2 * keys + values) + gate + values * hidden)
    yield Part(SMALL, hidden * (1 if a.delta else 2) * a.value_heads / tensor + (2 * keys + values) * a.conv_kernel)


def _mamba(a: Mamba, hidden: int, tensor: int) -> Iterator[Part]:
    inner, shared = a.heads * a.head_dim / tensor, 2 * a.groups * a.state / min(tensor, a.groups)
    yield Part(LINEAR, hidden * (2 * inner + shared + a.heads / tensor) + inner * hidden)
    yield Part(SMALL, (inner + shared) * a.conv_kernel)


def _matrices(gated: bool) -> int:
    return 3 if gated else 2


def _ffn_parts(ffn: FeedForward, hidden: int, split: Split) -> Iterator[Part]:
    if isinstance(ffn, Dense):
        yield Part(MLP, _matrices(ffn.gated) * hidden * ffn.intermediate / split.tensor)
    else:
        yield from _expert_parts(ffn, hidden, split)


def _expert_parts(e: Experts, hidden: int, split: Split) -> Iterator[Part]:
    width, matrices = e.latent or hidden, _matrices(e.gated)
    if split.expert > 1:
        routed = float(math.ceil(e.count / split.expert) * matrices * width * e.intermediate)
    else:
        routed = e.count * matrices * width * e.intermediate / split.tensor
    yield Part(EXPERTS, routed)
    yield Part(ROUTER, hidden * e.count)
    if e.latent:
        yield Part(SHARED, 2 * hidden * e.latent)
    if e.shared_intermediate:
        yield Part(SHARED, matrices * hidden * e.shared_intermediate / split.tensor)
    if e.dense_intermediate:
        yield Part(MLP, matrices * hidden * e.dense_intermediate / split.tensor)
    if e.bias:
        cut = split.expert if split.expert > 1 else split.tensor
        yield Part(SMALL, e.count * (2 * e.intermediate + width) / cut)
