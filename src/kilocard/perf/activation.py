"""The memory peak of the engine's profile run, outside weights: the sampler's or one layer's, whichever is higher.

Neither depends on the architecture's fame, as constants in other planners do, but on the vocabulary and the number of
sequences (sampler) and on tokens and width (layer).
"""

from __future__ import annotations

from dataclasses import dataclass

from kilocard.perf import engine_defaults as defaults
from kilocard.perf import model_runner
from kilocard.perf.architecture import Architecture
from kilocard.perf.layers import Dense, Experts
from kilocard.perf.layout import Layout
from kilocard.perf.setting import Resolved
from kilocard.perf.weights import GIB

#: input tensors, block tables and other odds and ends (fitted)
REST_GIB = 0.04
#: bytes of the encoder's peak for each token of an image when the tower is not known: 27 layers of 1,152, four patches
UNKNOWN_TOWER_BYTES = 142_000


@dataclass(frozen=True, slots=True)
class Activation:
    """GiB on one GPU of a stage; `largest` says what makes the peak."""

    gib: float
    largest: str


def activation(architecture: Architecture, layout: Layout, resolved: Resolved, *, last: bool) -> Activation:
    """`last`: the stage that has the head and the sampler."""
    tokens, hidden, element = resolved.max_num_batched_tokens, architecture.hidden, resolved.weight_bytes
    layer = _layer_gib(architecture, layout, resolved)
    # between stages travel the hidden states and the residual
    passing = 2 * tokens * hidden * element / GIB if layout.pipeline > 1 else 0.0
    # what the encoder made of the images waits for the layers
    waiting = tokens * hidden * element / GIB if architecture.vision else 0.0
    words = f"one layer's forward pass over {tokens:,} tokens"
    peak = layer
    if last:
        sequences = min(resolved.max_num_seqs, tokens)
        per_entry = _bytes_an_entry(architecture, resolved)
        sampler = per_entry * architecture.vocab * sequences / GIB + REST_GIB
        sampler += tokens * hidden * element / GIB + _expert_workspace_gib(architecture, layout, resolved)
        if sampler > peak:
            peak = sampler
            words = f"the sampler: {per_entry:g} bytes × {architecture.vocab:,} vocabulary × {sequences:,} sequences"
    peak += passing + waiting
    encoder = _encoder_gib(architecture, resolved)
    if encoder > peak:
        return Activation(encoder, "encoding the largest image")
    return Activation(peak, words)


def _bytes_an_entry(architecture: Architecture, resolved: Resolved) -> float:
    """Of the vocabulary, for each sequence: the logits in the model's type, and with the first runner what it makes of
    them (the constant is of 16-bit models)."""
    if model_runner.second(resolved.version, architecture):
        return resolved.weight_bytes
    return defaults.at(defaults.SAMPLER_BYTES, resolved.version).value + (resolved.weight_bytes - 2)


def _layer_gib(architecture: Architecture, layout: Layout, resolved: Resolved) -> float:
    """A gated network holds its two halves and their product, beside the residual stream: 3 × hidden in engine V0 (its
    peaks at 20,000 and 29,000 tokens fit to 0.1 %), 4 × since the forward pass is compiled."""
    streams = 3 if resolved.version < defaults.CHUNKED_PREFILL_SINCE else 4
    width = 0.0
    for block in architecture.blocks:
        if isinstance(block.ffn, Dense):
            width = max(width, (3 if block.ffn.gated else 2) * block.ffn.intermediate / layout.tensor)
    # in a mixture the shared experts pass all tokens, the routed ones go through a workspace of their own
    shared = max((b.ffn.shared_intermediate for b in architecture.blocks if isinstance(b.ffn, Experts)), default=0)
    width = max(width, 3 * shared / layout.tensor)
    tokens = resolved.max_num_batched_tokens
    return tokens * resolved.weight_bytes * (width + streams * architecture.hidden) / GIB


def _expert_workspace_gib(architecture: Architecture, layout: Layout, resolved: Resolved) -> float:
    """Each token's copies for its experts: two intermediates and a result. MXFP4 kernels work without."""
    experts = architecture.experts
    if experts is None or (resolved.quantization is not None and resolved.quantization.method == "mxfp4"):
        return 0.0
    width = experts.intermediate / (1 if layout.expert > 1 else layout.tensor)
    hidden = experts.latent or architecture.hidden
    return resolved.max_num_batched_tokens * experts.top_k * (2 * width + hidden) * resolved.weight_bytes / GIB


def _encoder_gib(architecture: Architecture, resolved: Resolved) -> float:
    """The vision tower's own peak on as many images as are profiled at once, of the largest size unless one is said."""
    if not architecture.vision:
        return 0.0
    tokens = (resolved.image_tokens or architecture.image_tokens) * resolved.images
    per_token = architecture.image_token_bytes or UNKNOWN_TOWER_BYTES
    return tokens * per_token / GIB
