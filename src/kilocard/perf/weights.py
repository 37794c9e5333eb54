"""Bytes of weights on one GPU of each pipeline stage, part by part."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass

from kilocard.perf.architecture import Architecture
from kilocard.perf.layers import Block, Experts, Latent
from kilocard.perf.layout import Layout
from kilocard.perf.parameters import EXPERTS, SMALL, Part, Split, block_parts, end_parts
from kilocard.perf.quantization import Quantization

GIB = 2**30
ROTARY, ABSORBED = "rotary_tables", "absorbed_projections"
#: MXFP4 kernels want the hidden size in steps of 256 and each GPU's share of an expert in steps of 128 (vLLM)
MXFP4_STEPS = (256, 128)


@dataclass(frozen=True, slots=True)
class Weights:
    """One GPU of a stage. `parts`: bytes by name, largest first; they add up to `bytes_per_gpu`."""

    bytes_per_gpu: int
    parts: tuple[tuple[str, int], ...]

    @property
    def gib_per_gpu(self) -> float:
        return self.bytes_per_gpu / GIB


def stage_blocks(architecture: Architecture, pipeline: int) -> list[tuple[Block, ...]]:
    """Layers of each stage as vLLM deals them out: evenly; what is left over goes to the stages before the last."""
    count, left = divmod(architecture.layers, pipeline)
    sizes = [count] * pipeline
    for place in range(2, left + 2):
        sizes[-place] += 1
    stages, start = [], 0
    for size in sizes:
        stages.append(architecture.blocks[start : start + size])
        start += size
    return stages


def stage_range(architecture: Architecture, pipeline: int, stage: int) -> range:
    """Indices of the layers of one stage."""
    sizes = [len(blocks) for blocks in stage_blocks(architecture, pipeline)]
    start = sum(sizes[:stage])
    return range(start, start + sizes[stage])


def weights(
    architecture: Architecture,
    layout: Layout,
    quantization: Quantization | None,
    *,
    plain_bytes: int = 2,
    stage: int = 0,
) -> Weights:
    """`plain_bytes` a weight that is not quantised."""
    stages = stage_blocks(architecture, layout.pipeline)
    split = Split(layout.tensor, layout.expert)
    first, last = stage == 0, stage == layout.pipeline - 1
    found: defaultdict[str, float] = defaultdict(float)
    for block in stages[stage]:
        for part in block_parts(block, architecture, split):
            found[part.name] += _bytes(part, quantization, plain_bytes) * _padding(
                part, block, architecture, layout, quantization
            )
    for part in end_parts(architecture, layout.tensor, first=first, last=last):
        found[part.name] += _bytes(part, quantization, plain_bytes)
    for block in stages[stage]:
        found[ABSORBED] += _absorbed(block, layout.tensor) * plain_bytes
    found[ROTARY] += architecture.rotary_elements * plain_bytes
    _scale(found, architecture, quantization, plain_bytes)
    parts = sorted(((name, round(size)) for name, size in found.items() if size >= 1), key=lambda each: -each[1])
    return Weights(sum(size for _, size in parts), tuple(parts))


def _scale(
    found: defaultdict[str, float],
    architecture: Architecture,
    quantization: Quantization | None,
    plain_bytes: int,
) -> None:
    """When the checkpoint's size is known, the parts keep their proportions and take its sum."""
    as_stored = quantization is architecture.quantization and (quantization is not None or plain_bytes == 2)
    if not architecture.stored_bytes or not as_stored:
        return
    whole = Split()
    parts = [part for block in architecture.blocks for part in block_parts(block, architecture, whole)]
    parts += end_parts(architecture, 1, first=True, last=True)
    # the file has no padding of the vocabulary, which is under 0.1 %
    ratio = architecture.stored_bytes / sum(_bytes(part, quantization, plain_bytes) for part in parts)
    if 0.5 < ratio < 2:
        for name in found:
            if name not in {ROTARY, ABSORBED}:
                found[name] *= ratio


def _bytes(part: Part, quantization: Quantization | None, plain_bytes: int) -> float:
    plain = 8 * plain_bytes
    bits = plain if quantization is None or part.name == SMALL else quantization.bits_of(part.name, plain)
    return part.elements * bits / 8


def _padding(
    part: Part, block: Block, architecture: Architecture, layout: Layout, quantization: Quantization | None
) -> float:
    """How much larger the kernels make experts in MXFP4: gpt-oss loads 8.6 % more than its file has."""
    ffn = block.ffn
    if part.name != EXPERTS or quantization is None or quantization.method != "mxfp4" or not isinstance(ffn, Experts):
        return 1.0
    hidden_step, width_step = MXFP4_STEPS
    width = ffn.intermediate / (1 if layout.expert > 1 else layout.tensor)
    hidden = ffn.latent or architecture.hidden
    return _up(hidden, hidden_step) / hidden * _up(width, width_step) / width


def _absorbed(block: Block, tensor: int) -> float:
    """MLA keeps its up-projections of K and V a second time, transposed, in 16 bits, for decoding in latent space."""
    if not isinstance(block.mixer, Latent):
        return 0.0
    mixer = block.mixer
    return mixer.kv_rank * mixer.heads / tensor * (mixer.nope_dim + mixer.value_dim)


def _up(size: float, step: int) -> int:
    return math.ceil(size / step) * step
