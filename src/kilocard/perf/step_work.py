"""What one engine step has to do, counted from a model's shape: bytes read, operations, bytes sent.

Counts are of one GPU of the replica. "A token" is a token of the whole replica's batch: with data-parallel attention
each rank sees its share of them, experts see all.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kilocard.perf.architecture import Architecture
from kilocard.perf.gpus import Gpu
from kilocard.perf.layers import Attention, Compressed, Experts, Latent, Linear, Mamba, Mixer
from kilocard.perf.layout import Layout
from kilocard.perf.parameters import EMBEDDING, EXPERTS, HEAD, NORM, SMALL, TOWER, Split, block_parts, end_parts
from kilocard.perf.quantization import Quantization

PLAIN_BITS = 16
#: a window this long or longer is read like a full cache: prompts are seldom longer
LONG_WINDOW = 2048


@dataclass(slots=True)
class StepWork:
    """Bytes and operations; what is "of a sequence" or "of a token" is multiplied by how many the batch has."""

    #: read once a step by every batch
    weight_bytes: float = 0.0
    #: all routed experts that lie here, and the share of them that one token picks
    expert_bytes: float = 0.0
    expert_share: float = 1.0
    #: experts that one token picks
    top_k: int = 0
    #: bits of a routed expert's weights, scales included
    expert_bits: float = 16.0
    #: operations of a token by (in experts, bits of the operands)
    products: dict[tuple[bool, int], float] = field(default_factory=dict)
    #: the output head's, of a sequence that gets a token out
    head_operations: float = 0.0
    #: cache read of one decoding sequence for each token of its context, and whatever its length
    kv_bytes: float = 0.0
    sequence_bytes: float = 0.0
    #: the cache is one latent vector for all heads (MLA)
    latent: bool = False
    #: operations of a pair of tokens in attention
    pair_operations: float = 0.0
    layers: int = 0
    expert_layers: int = 0
    #: with an indexer that chooses what attention reads (DeepSeek's sparse attention)
    indexed_layers: int = 0
    #: collectives of one step: AllReduces (two a layer), and bytes of a token in each of them
    all_reduces: int = 0
    hidden_bytes: float = 0.0


def step_work(
    architecture: Architecture,
    gpu: Gpu,
    layout: Layout,
    *,
    quantization: Quantization | None,
    kv_bits: int = 16,
) -> StepWork:
    """Layers of one pipeline stage's GPU add up over the stages: a token passes all of them, one after the other."""
    work = StepWork(layers=architecture.layers, hidden_bytes=architecture.hidden * PLAIN_BITS / 8)
    split = Split(layout.tensor, layout.expert)
    for block in architecture.blocks:
        experts = block.ffn if isinstance(block.ffn, Experts) else None
        for part in block_parts(block, architecture, split):
            if part.name in {NORM, SMALL}:
                continue
            bits, operand = _bits(part.name, gpu, quantization)
            if part.name == EXPERTS and experts is not None:
                share = experts.top_k / experts.count
                work.expert_bytes += part.elements * bits / 8
                work.expert_bits, work.expert_share, work.top_k = bits, share, experts.top_k
                _add(work, True, operand, 2 * part.elements * share)
            else:
                work.weight_bytes += part.elements * bits / 8
                _add(work, False, operand, 2 * part.elements / layout.data)
        work.expert_layers += experts is not None
        work.all_reduces += (block.mixer is not None) + (block.ffn is not None)
        if block.mixer is not None:
            _mixer(work, block.mixer, layout, kv_bits)
    for part in end_parts(architecture, layout.tensor, first=True, last=True):
        # an untied embedding is looked up, not read; the head is read and multiplied for tokens that come out only
        if part.name == HEAD or (part.name == EMBEDDING and architecture.tied):
            work.weight_bytes += part.elements * _bits(HEAD, gpu, quantization)[0] / 8
            work.head_operations += 2 * part.elements / layout.data
        elif part.name not in {EMBEDDING, TOWER, NORM, SMALL}:
            raise AssertionError(f"nobody counts {part.name}")
    return work


def _add(work: StepWork, in_experts: bool, operand: int, operations: float) -> None:
    key = (in_experts, operand)
    work.products[key] = work.products.get(key, 0.0) + operations


def _bits(part: str, gpu: Gpu, quantization: Quantization | None) -> tuple[float, int]:
    """(bits of a stored weight, bits of the operands of its products on this GPU)."""
    if quantization is None or part in quantization.kept:
        return PLAIN_BITS, PLAIN_BITS
    return quantization.weight_bits, operand_bits(quantization, gpu)


def operand_bits(quantization: Quantization, gpu: Gpu) -> int:
    """Products of 4 or 8 bits only where the GPU has them; else weights are widened to 16 as they are read (Marlin)."""
    wanted = quantization.activation_bits
    if quantization.method == "mxfp4" and gpu.capability >= 100:
        wanted = 8  # MXFP4 weights are multiplied with MXFP8 activations where tensor cores can
    native = {4: "fp4", 8: "int8" if quantization.method == "int8" else "fp8"}.get(wanted, "")
    return wanted if native in gpu.tflops else PLAIN_BITS


def _mixer(work: StepWork, mixer: Mixer, layout: Layout, kv_bits: int) -> None:
    size, tensor, data = kv_bits / 8, layout.tensor, layout.data
    match mixer:
        case Attention():
            kv = max(1.0, mixer.kv_heads / tensor) * (mixer.head_dim + mixer.value_dim) * size / data
            if mixer.window is None or mixer.window >= LONG_WINDOW:
                work.kv_bytes += kv
                work.pair_operations += 2 * mixer.heads / tensor * (mixer.head_dim + mixer.value_dim) / data
            else:
                work.sequence_bytes += kv * mixer.window
        case Latent():
            work.latent = True
            work.indexed_layers += bool(mixer.index_heads)
            work.kv_bytes += (mixer.kv_rank + mixer.rope_dim) * size / data
            pair = mixer.nope_dim + mixer.rope_dim + mixer.value_dim
            work.pair_operations += 2 * mixer.heads / tensor * pair / data
        case Compressed():
            work.latent = True
            work.indexed_layers += bool(mixer.index_heads)
            work.sequence_bytes += mixer.window * mixer.head_dim * size / data
            if mixer.ratio:
                work.kv_bytes += mixer.head_dim * size / mixer.ratio / data
                work.pair_operations += 4 * mixer.heads / tensor * mixer.head_dim / mixer.ratio / data
        case Linear():
            # the state is read and written in 32 bits
            work.sequence_bytes += 8 * mixer.value_heads / tensor * mixer.key_dim * mixer.value_dim / data
        case Mamba():
            work.sequence_bytes += 8 * mixer.heads / tensor * mixer.head_dim * mixer.state / data
