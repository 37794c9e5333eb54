"""A profile of what was never measured here: the roofline of a model's shape on a GPU's data sheet, times priors.

Few numbers say how much of the sheet engines reach (`priors.py`); everything else is counted (`step_work.py`). What a
prior stands on, and the error to expect, is in the profile: `provenance: modelled`, `error`, `note`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from kilocard.perf.architecture import Architecture
from kilocard.perf.gpus import Gpu
from kilocard.perf.layout import Layout
from kilocard.perf.link import RDMA, Link, bubble, inside
from kilocard.perf.memory import Memory
from kilocard.perf.prior_numbers import PRIORS
from kilocard.perf.priors import FITTED, Generation, Reach, expected_error, generation
from kilocard.perf.profile import Profile
from kilocard.perf.quantization import Quantization
from kilocard.perf.step_work import StepWork, step_work

#: of an engine without curves of its own
FALLBACK_ENGINE = "vllm"


#: an indexer's time in a step, in layers. Counted, not fitted: some sixteen kernels a layer in SGLang's nsa_indexer.py
#: (three projections and two quantisations before them, a norm, rotation of q and k and their copies, two Hadamard
#: transforms, two quantisations, writing K, the heads' gate, the logits, the choice) beside about ten of a plain layer
INDEXER_LAYERS = 1.6


class Room(Protocol):
    """What is asked of perf.memory.Memory."""

    @property
    def kv_tokens(self) -> int: ...


class Setting(Protocol):
    """What is asked of an engine's setting; read from the memory plan's own, with its defaults filled in."""

    @property
    def max_num_seqs(self) -> int: ...
    @property
    def max_num_batched_tokens(self) -> int: ...
    @property
    def max_model_len(self) -> int: ...
    @property
    def block_size(self) -> int: ...


@dataclass(frozen=True, slots=True)
class StepTimes:
    """The coefficients of Profile.step_s, seconds; see there."""

    step_fixed_s: float
    prefill_token_s: float
    decode_seq_s: float
    kv_token_s: float
    weights_s: float
    experts_s: float
    expert_share: float
    sequence_s: float
    attention_s: float
    prefill_step_s: float
    request_s: float
    steps_ahead: float
    turnaround_steps: float


def profile_of(
    architecture: Architecture,
    gpu: Gpu,
    layout: Layout,
    memory: Memory,
    version: str | None = None,
    link: Link | None = None,
    *,
    engine: str = FALLBACK_ENGINE,
    between: Link = RDMA,
) -> Profile:
    """modelled_profile of a replica whose memory was accounted for: with the limits, weights and cache of that."""
    resolved = memory.resolved
    return modelled_profile(
        architecture,
        gpu,
        layout,
        memory,
        resolved,
        link,
        engine=engine,
        engine_version=version or "",
        quantization=resolved.quantization,
        kv_bits=round(8 * resolved.kv_bytes),
        between=between,
    )


def modelled_profile(
    architecture: Architecture,
    gpu: Gpu,
    layout: Layout,
    memory: Room,
    setting: Setting,
    link: Link | None = None,
    *,
    engine: str = FALLBACK_ENGINE,
    engine_version: str = "",
    quantization: Quantization | None = None,
    kv_bits: int = 16,
    between: Link = RDMA,
) -> Profile:
    """`link` joins the GPUs of a tensor-parallel group (None: NVLink or PCIe, as the card has), `between` the stages
    of a pipeline and the ranks of expert parallelism. `quantization` None: the model's own."""
    quantization = quantization or architecture.quantization
    work = step_work(architecture, gpu, layout, quantization=quantization, kv_bits=kv_bits)
    prior = PRIORS.get(engine)
    known = prior or PRIORS[FALLBACK_ENGINE]
    times = step_times(work, gpu, layout, known.reach, known.generations, link or inside(gpu), between)
    kind = "experts" if work.expert_bytes else "dense"
    evidence = known.evidence.get((generation(gpu), kind))
    error, error_p90 = expected_error(evidence, engine_known=prior is not None)
    basis = (
        f"the errors are of {evidence.rows} rows of {evidence.models} {kind} model{'s' * (evidence.models > 1)} on "
        f"{generation(gpu)} GPUs, each by a fit that had not seen its model"
        if evidence
        else f"too few curves of {kind} models on {generation(gpu)} GPUs are known; other GPUs' or models' stand in"
    )
    doubt = "" if prior else f" No curve of {engine} is known; {FALLBACK_ENGINE}'s priors stand in."
    return Profile(
        name=f"{architecture.name or 'model'} on {gpu.name} {layout}",
        step_fixed_s=times.step_fixed_s,
        prefill_token_s=times.prefill_token_s,
        decode_seq_s=times.decode_seq_s,
        kv_token_s=times.kv_token_s,
        kv_tokens=memory.kv_tokens,
        max_num_seqs=setting.max_num_seqs,
        max_num_batched_tokens=setting.max_num_batched_tokens,
        block_size=setting.block_size,
        max_model_len=setting.max_model_len,
        weights_s=times.weights_s,
        experts_s=times.experts_s,
        expert_share=times.expert_share,
        sequence_s=times.sequence_s,
        attention_s=times.attention_s,
        prefill_step_s=times.prefill_step_s,
        request_s=times.request_s,
        steps_ahead=times.steps_ahead,
        turnaround_steps=times.turnaround_steps,
        provenance="modelled",
        engine=engine,
        engine_version=engine_version,
        gpu=gpu.name,
        date=FITTED,
        error=error,
        error_p90=error_p90,
        note=f"Roofline with priors fitted on public curves; {basis}.{doubt}",
    )


def step_times(
    work: StepWork,
    gpu: Gpu,
    layout: Layout,
    reach: Reach,
    generations: Mapping[str, Generation],
    link: Link,
    between: Link = RDMA,
) -> StepTimes:
    """The arithmetic alone. Sequences, prompt tokens and cache are shared out over a pipeline's stages; weights are
    not, since each stage reads its own once for each of the batches that are in the pipeline."""
    other = generations.get(generation(gpu), Generation())
    bandwidth = gpu.bandwidth_gb_s * 1e9 * reach.bandwidth * other.bandwidth
    stages = layout.pipeline
    weights = work.weight_bytes / bandwidth
    experts = work.expert_bytes / (bandwidth * reach.experts[nearest(work.expert_bits)])
    products = sum(
        operations / (_peak(gpu, bits) * reach.products[(in_experts, bits)] * other.products)
        for (in_experts, bits), operations in work.products.items()
    )
    head = work.head_operations / (_peak(gpu, 16) * reach.products[(False, 16)] * other.products)
    cache = gpu.bandwidth_gb_s * 1e9 * reach.cache * other.cache
    kv = work.kv_bytes * (reach.latent if work.latent else 1.0) / cache
    attention = work.pair_operations / (_peak(gpu, 16) * reach.attention * other.products)
    talk_token, talk_step = _talk(work, layout, reach, link, between)
    layers = work.layers * reach.layer_s * other.layer + work.expert_layers * reach.expert_layer_s
    layers += work.indexed_layers * INDEXER_LAYERS * reach.layer_s * other.layer
    if work.latent:
        layers += work.layers * reach.latent_layer_s
    # all batches of a full pipeline but the first wait for it to fill: a prompt's chunks are its micro-batches
    idle = 1 - bubble(stages, stages)
    return StepTimes(
        step_fixed_s=stages * reach.step_s + layers + talk_step,
        prefill_token_s=(products + talk_token) / (stages * idle if stages > 1 else 1),
        decode_seq_s=(products + head) / stages,
        kv_token_s=kv / stages,
        weights_s=weights,
        experts_s=experts,
        expert_share=work.expert_share,
        sequence_s=reach.sequence_s + (work.sequence_bytes / cache + talk_token) / stages,
        attention_s=attention / stages,
        prefill_step_s=work.layers * reach.prefill_layer_s,
        request_s=reach.request_s,
        steps_ahead=reach.steps_ahead,
        turnaround_steps=reach.turnaround_steps,
    )


def _peak(gpu: Gpu, bits: int) -> float:
    return gpu.tflops_at(bits) * 1e12


def nearest(bits: float) -> int:
    """The weight format whose prior holds: 4, 8 or 16 bits."""
    return 4 if bits < 6 else 8 if bits < 12 else 16


def _talk(work: StepWork, layout: Layout, reach: Reach, link: Link, between: Link) -> tuple[float, float]:
    """(seconds of a token, seconds of a step) for AllReduces, pipeline hand-overs and the experts' all-to-all."""
    token = step = 0.0
    if layout.tensor > 1:
        size = work.hidden_bytes / layout.data
        rounds = reach.rounds * link.rounds_s(layout.tensor)
        step += work.all_reduces * rounds
        whole = link.all_reduce_s(size, layout.tensor) - link.rounds_s(layout.tensor)
        token += work.all_reduces * whole / reach.link
    if layout.pipeline > 1:
        step += layout.pipeline * between.latency_s
        token += (layout.pipeline - 1) * work.hidden_bytes / between.bytes_per_s
    if layout.data > 1 and work.expert_layers:
        # tokens go to their experts' GPUs and come back; ranks of one machine use its link
        far = between if layout.gpus > 8 else link
        ranks = layout.tensor * layout.data
        copies = min(ranks, work.top_k)
        size = copies * work.hidden_bytes / ranks
        both = far.all_to_all_s(size, ranks) - far.rounds_s(ranks)
        step += 2 * work.expert_layers * far.rounds_s(ranks)
        token += 2 * work.expert_layers * both
    return token, step
