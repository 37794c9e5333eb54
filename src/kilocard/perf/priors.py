"""How much of a GPU engines reach: few numbers, fitted on public curves. `modelled.py` uses them.

The errors are of models that were kept out of the fit; the program, the data and the error tables are in
docs/speed-model.md. A share is of the data sheet's peak.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kilocard.perf.gpus import Gpu

FITTED = "2026-11-30"


@dataclass(frozen=True, slots=True)
class Reach:
    """What an engine reaches of a GPU on Hopper, and its own time; other generations by `Generation`."""

    #: share of memory bandwidth: weights; experts, of that share, by bits of their weights (4, 8, 16); the cache
    bandwidth: float
    experts: Mapping[int, float]
    cache: float
    #: times the cache's bytes for latent attention, whose kernels compute more than they read
    latent: float
    #: share of matrix arithmetic by (in experts, bits of the operands); of attention, of 16-bit arithmetic
    products: Mapping[tuple[bool, int], float]
    attention: float
    #: seconds of a step, of each layer, of a layer with experts more, of a layer with latent attention more
    step_s: float
    layer_s: float
    expert_layer_s: float
    latent_layer_s: float
    #: seconds of a layer more in a step that has prompt tokens
    prefill_layer_s: float
    #: seconds of a sequence in a step
    sequence_s: float
    #: latency of a collective's round, times the link's
    rounds: float
    #: bytes of collectives per second, times the link's
    link: float
    #: a request's time outside of steps, seconds; steps scheduled before it
    request_s: float
    steps_ahead: float
    #: steps more in the closed loops of the tables
    turnaround_steps: float


@dataclass(frozen=True, slots=True)
class Generation:
    """Another generation of GPUs beside Hopper: factors on the shares above, and on the time of a layer."""

    bandwidth: float = 1.0
    cache: float = 1.0
    products: float = 1.0
    layer: float = 1.0


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a prior was checked on: rows of models, each predicted by a fit that had seen no row of its model."""

    rows: int
    models: int
    #: relative error of throughput, shares
    median: float
    p90: float


@dataclass(frozen=True, slots=True)
class Prior:
    reach: Reach
    generations: Mapping[str, Generation] = field(default_factory=dict)
    #: by (generation, model class)
    evidence: Mapping[tuple[str, str], Evidence] = field(default_factory=dict)


#: relative errors (median, 90th percentile) that are stated where nothing was measured: guesses, on the wide side
UNMEASURED_GPU = (0.3, 0.6)
UNMEASURED_ENGINE = (0.4, 0.8)


def expected_error(evidence: Evidence | None, *, engine_known: bool) -> tuple[float, float]:
    """Median and 90th percentile of the relative error to state for a modelled profile, shares."""
    median, p90 = (evidence.median, evidence.p90) if evidence else UNMEASURED_GPU
    if engine_known:
        return median, p90
    return max(median, UNMEASURED_ENGINE[0]), max(p90, UNMEASURED_ENGINE[1])


def generation(gpu: Gpu) -> str:
    """ampere, ada, hopper or blackwell; older, AMD and Intel: other."""
    if gpu.capability >= 100:
        return "blackwell"
    return {90: "hopper", 89: "ada", 80: "ampere", 86: "ampere"}.get(gpu.capability, "other")
