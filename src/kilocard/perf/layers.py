"""What a layer is made of: mixers over the sequence and feed-forward networks, as shapes.

Counts are of the whole layer, unsharded; sizes in elements, lengths in tokens.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Attention:
    """Softmax attention with its own K and V: MHA, GQA or MQA by `kv_heads`; head sizes in elements."""

    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    #: tokens that a query looks back (sliding window), or the length of a chunk; None = all
    window: int | None = None
    #: "window" slides with the query; "chunked" (Llama 4) starts anew every `window` tokens
    chunked: bool = False
    bias: bool = False
    #: the query projection makes a gate of its own size too (Qwen3-Next, Qwen3.5)
    gated: bool = False
    #: keys are values too, one projection for both (global layers of Gemma 4)
    shared_kv: bool = False
    #: False: the layer reads the cache of an earlier one and has none of its own (last layers of Gemma 3n, Gemma 4 E4B)
    cached: bool = True

    @property
    def kind(self) -> str:
        if self.window is None:
            return "full"
        return "chunked" if self.chunked else "window"


@dataclass(frozen=True, slots=True)
class Latent:
    """Multi-head latent attention (DeepSeek): one compressed vector and one rotary key a token, for all heads."""

    heads: int
    #: 0 = queries are projected at once
    query_rank: int
    kv_rank: int
    nope_dim: int
    rope_dim: int
    value_dim: int
    #: DeepSeek sparse attention: heads and head size of the indexer, 0 without
    index_heads: int = 0
    index_dim: int = 0

    @property
    def kind(self) -> str:
        return "mla"


@dataclass(frozen=True, slots=True)
class Compressed:
    """DeepSeek V4: a window of latent vectors, and beyond it one compressed vector for every `ratio` tokens."""

    heads: int
    head_dim: int
    rope_dim: int
    query_rank: int
    window: int
    #: 0 = the window only; 4 = sparse, with an indexer; 128 = dense over the compressed vectors
    ratio: int
    index_heads: int = 0
    index_dim: int = 0
    output_rank: int = 1024
    output_groups: int = 8

    @property
    def kind(self) -> str:
        return "compressed"


@dataclass(frozen=True, slots=True)
class Linear:
    """Linear attention with a state of fixed size (gated delta net, Kimi delta attention)."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    conv_kernel: int
    #: Kimi delta attention: q, k, v have convolutions of their own and the gates are of low rank
    delta: bool = False
    #: bytes of an element of the recurrent state
    state_bytes: int = 4

    @property
    def kind(self) -> str:
        return "linear"


@dataclass(frozen=True, slots=True)
class Mamba:
    """Mamba-2: `heads` of `head_dim`, each with `state` numbers an element; B and C shared by `groups`."""

    heads: int
    head_dim: int
    state: int
    groups: int
    conv_kernel: int
    #: bytes of an element of the recurrent state
    state_bytes: int = 4

    @property
    def kind(self) -> str:
        return "mamba"


Mixer = Attention | Latent | Compressed | Linear | Mamba


@dataclass(frozen=True, slots=True)
class Dense:
    """One feed-forward network. `gated`: three matrices (SwiGLU), else two."""

    intermediate: int
    gated: bool = True


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture of experts: `top_k` of `count` for a token, and what runs for every token beside them."""

    count: int
    top_k: int
    intermediate: int
    gated: bool = True
    #: width of all shared experts together, 0 without
    shared_intermediate: int = 0
    #: width of a dense network that runs in parallel (Gemma 4), 0 without
    dense_intermediate: int = 0
    #: experts work on vectors of this width, not of the hidden size (Nemotron 3 Super), 0 = hidden size
    latent: int = 0
    bias: bool = False


FeedForward = Dense | Experts


@dataclass(frozen=True, slots=True)
class Block:
    """One layer. Most have both; Nemotron-H counts mixers and feed-forward networks as layers of their own."""

    mixer: Mixer | None
    ffn: FeedForward | None
