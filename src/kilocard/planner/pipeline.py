"""Pipeline stages: which layers each has, how even their work is, and what the bubble costs.

Work is counted in weights that a token passes through (a decode step reads them, a prefill multiplies by them), so
layers of different kinds, and the output head on the last stage, count as what they are; equal numbers of layers are
not equal work.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

from kilocard.perf.architecture import Architecture
from kilocard.perf.layers import Block, Experts
from kilocard.perf.parameters import EXPERTS, Split, block_parts

#: a partition that is better by less than this is not worth an environment variable
_WORTH = 0.03


@dataclass(frozen=True, slots=True)
class Stages:
    #: of each stage
    layers: tuple[int, ...]
    #: work of each stage, as a share of all
    work: tuple[float, ...]

    @property
    def balance(self) -> float:
        """Mean over largest stage: 1 is even, and 1 − balance of the GPUs' time is spent waiting for the slowest."""
        return 1 / (len(self.work) * max(self.work))

    def setting(self) -> str:
        """The value of VLLM_PP_LAYER_PARTITION that gives these stages."""
        return ",".join(map(str, self.layers))


def usual_stages(architecture: Architecture, pipeline: int) -> Stages:
    """As vLLM divides by itself: equal numbers, what is left over goes to stages from the last but one backwards."""
    each, left = divmod(architecture.layers, pipeline)
    layers = [each] * pipeline
    for i in range(2, left + 2):
        layers[-i] += 1
    return _stages(architecture, tuple(layers))


def even_stages(architecture: Architecture, pipeline: int) -> Stages:
    """Consecutive layers divided so that the slowest stage has the least work."""
    work = _work(architecture)
    low, high = max(work), sum(work)
    for _ in range(50):  # narrows the bound by 2⁻⁵⁰
        middle = (low + high) / 2
        if len(_cut(work, middle)) <= pipeline:
            high = middle
        else:
            low = middle
    layers = _cut(work, high)
    while len(layers) < pipeline:  # fewer stages were enough for the bound: split the one with the most layers
        i = max(range(len(layers)), key=layers.__getitem__)
        layers[i : i + 1] = [layers[i] - layers[i] // 2, layers[i] // 2]
    return _stages(architecture, tuple(layers))


def better_stages(architecture: Architecture, pipeline: int) -> Stages | None:
    """A division that is worth setting by hand; None: the usual one is as good."""
    usual, even = usual_stages(architecture, pipeline), even_stages(architecture, pipeline)
    return even if max(usual.work) > (1 + _WORTH) * max(even.work) else None


def _stages(architecture: Architecture, layers: tuple[int, ...]) -> Stages:
    work = _work(architecture)
    total = sum(work)
    ends = list(accumulate(layers))
    starts = [0, *ends[:-1]]
    return Stages(layers, tuple(sum(work[a:b]) / total for a, b in zip(starts, ends, strict=True)))


def _work(architecture: Architecture) -> list[float]:
    """Of each layer; the head counts with the last one (the embedding is a look-up: no work)."""
    work = [_block_work(block, architecture) for block in architecture.blocks]
    work[-1] += architecture.vocab * architecture.hidden
    return work


def _block_work(block: Block, architecture: Architecture) -> float:
    share = block.ffn.top_k / block.ffn.count if isinstance(block.ffn, Experts) else 1.0
    return sum(
        part.elements * (share if part.name == EXPERTS else 1.0) for part in block_parts(block, architecture, Split())
    )


def _cut(work: list[float], bound: float) -> list[int]:
    """The fewest stages of at most `bound` work each, as numbers of layers."""
    layers, held = [0], 0.0
    for each in work:
        if held + each > bound and layers[-1]:
            layers.append(0)
            held = 0.0
        layers[-1] += 1
        held += each
    return layers
