"""Which of vLLM's two model runners a version takes for a model, and what the second changes in the account.

The second sorts no logits: its trial run holds them once, in the model's own type, where the first holds sorted
copies and probabilities. Instead it keeps a count of every token of the vocabulary for every sequence, always. And it
counts what CUDA graphs will take in another way, which comes out higher.

It was switched on family by family (vLLM's post of 2026-08-31 on the migration, pull requests 39337, 43458, 42667,
44446, 44443 and 53183): from 0.25 for dense models, from 0.29 for all.
"""

from __future__ import annotations

from kilocard.perf.architecture import Architecture
from kilocard.perf.engine_defaults import Version, captured_sizes, graph_sizes
from kilocard.perf.layers import Dense, Experts

GIB = 2**30
#: for every model, and before that for models without experts or recurrent states
ALL_SINCE: Version = (0, 29)
DENSE_SINCE: Version = (0, 25)
#: families that were first, unquantised until 0.24
FIRST_DENSE: dict[str, Version] = {"Qwen3For": (0, 22), "LlamaFor": (0, 23), "MistralFor": (0, 23)}
QUANTISED_SINCE: Version = (0, 24)
#: mixtures of experts that did not wait for the rest
FIRST_EXPERTS: dict[str, Version] = {"Qwen2Moe": (0, 24), "DeepseekV2For": (0, 24), "GraniteMoeFor": (0, 24)}
#: it estimates its graphs in its own way
OWN_ESTIMATE_SINCE: Version = (0, 27)

#: bytes for each vocabulary entry and sequence that stay: a 32-bit count of what was generated, a bit of the prompt's
STATE_BYTES = 4 + 1 / 8
#: GiB that are neither weights nor that: 0.12 to 0.15 on an A100 (0.31), a 4090 (0.27) and an L4 (0.28, 0.29)
OUTSIDE_GIB = 0.13


def second(version: Version, architecture: Architecture) -> bool:
    """Whether this version runs this model with its second model runner."""
    if version >= ALL_SINCE:
        return True
    if architecture.recurrent:
        return False
    listed = FIRST_EXPERTS if architecture.experts is not None else FIRST_DENSE
    if any(architecture.family.startswith(stem) and version >= since for stem, since in listed.items()):
        return architecture.quantization is None or version >= QUANTISED_SINCE
    return architecture.experts is None and version >= DENSE_SINCE


def sampler_state_gib(architecture: Architecture, max_num_seqs: int) -> float:
    """GiB that the second runner's sampler keeps on every GPU of the last stage."""
    return STATE_BYTES * architecture.vocab * max_num_seqs / GIB


def estimated_graphs_gib(
    architecture: Architecture, version: Version, max_num_seqs: int, *, tensor: int, pipeline: int, most: int
) -> float:
    """GiB that the engine sets aside for graphs before it captures them, which is not what they take.

    The first runner captures one graph of each kind on trial and adds a mebibyte or two for the others: 0.48 to 0.63
    on seven start-ups of 0.8 to 27 billion parameters, 0.66 with experts. The second adds for every graph of a decode
    step what the second largest took on trial, a layer's intermediates: 1.2 for 8 to 14 billion parameters on one
    GPU, 0.72 at TP2, 0.45 for half a billion. `most`: the largest batch that this GPU captures.
    """
    if not second(version, architecture) or version < OWN_ESTIMATE_SINCE:
        largest = 0.5 if architecture.experts is None else 0.65
        return largest * captured_sizes(max_num_seqs) / 51
    decode = min(max_num_seqs, most)
    graphs = len(graph_sizes(decode))
    widest = max((_width(block.ffn) for block in architecture.blocks), default=0.0) / tensor
    each = decode * 2 * (widest + 2 * architecture.hidden)
    return 0.0063 * architecture.layers / pipeline + graphs * each / GIB


def _width(ffn: Dense | Experts | None) -> float:
    """Elements that a token holds between the matrices of a layer: of a gated network both halves and their product."""
    match ffn:
        case Dense(intermediate=width, gated=gated):
            return (3 if gated else 2) * width
        case Experts(intermediate=width, gated=gated, top_k=top_k, shared_intermediate=shared):
            return (3 if gated else 2) * (top_k * width + shared)
        case None:
            return 0.0
