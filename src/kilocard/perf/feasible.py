"""What can't run, and why: refused before anybody buys a GPU for it. And what runs but should be known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kilocard.core.errors import PlanError
from kilocard.perf import engine_defaults as defaults
from kilocard.perf.architecture import Architecture
from kilocard.perf.gpus import Gpu
from kilocard.perf.layers import Attention, Compressed, Dense, Experts, Latent, Linear, Mamba
from kilocard.perf.layout import Layout
from kilocard.perf.parameters import padded_vocabulary
from kilocard.perf.setting import PROFILED, Resolved
from kilocard.perf.stage import Stage, account

#: GiB that must stay outside the engine's budget: at 0.45 graph capture died, at 0.67 it did not (22 GiB card)
OUTSIDE_GIB = 0.6
#: of the GPU: 0.3 GiB of 40. What is left on paper below that was 0.04 GiB in the one log of such a start-up
ERROR_SHARE = 0.0075
#: utilisation above which start-ups were seen to die after the cache was sized
HIGH_UTILIZATION = 0.92
CONSUMER_UTILIZATION = 0.85


def check_layout(architecture: Architecture, layout: Layout, resolved: Resolved) -> None:
    """Raises PlanError when the matrices can't be divided so."""
    reasons = list(
        dict.fromkeys([*_indivisible(architecture, layout.tensor), *_blocks_broken(architecture, layout, resolved)])
    )
    if reasons:
        told = "; ".join(reasons)
        raise PlanError(f"tensor parallel {layout.tensor} is not possible: {told}", code="indivisible")
    if layout.pipeline > architecture.layers:
        raise PlanError(
            f"pipeline parallel {layout.pipeline} is not possible: the model has {architecture.layers} layers",
            code="indivisible",
        )
    experts = architecture.experts
    if layout.expert > 1 and (experts is None or layout.expert > experts.count):
        count = experts.count if experts else 0
        raise PlanError(f"expert parallel {layout.expert} is not possible: {count} experts", code="indivisible")


def _indivisible(architecture: Architecture, tensor: int) -> Iterator[str]:
    for group in architecture.layer_groups:
        match group.mixer:
            case Attention(heads=heads, kv_heads=kv_heads):
                if heads % tensor:
                    yield f"{heads} attention heads are not divisible by {tensor}"
                if kv_heads % tensor and tensor % kv_heads:
                    yield f"{kv_heads} KV heads can be neither divided nor repeated over {tensor} GPUs"
            case Latent(heads=heads) | Compressed(heads=heads):
                if heads % tensor:
                    yield f"{heads} attention heads are not divisible by {tensor}"
            case Linear(value_heads=heads, key_heads=keys):
                if heads % tensor or keys % tensor:
                    yield f"{keys} key and {heads} value heads of linear attention are not divisible by {tensor}"
            case Mamba(heads=heads):
                if heads % tensor:
                    yield f"{heads} Mamba heads are not divisible by {tensor}"
    vocabulary = padded_vocabulary(architecture.vocab)
    if vocabulary % tensor:
        yield f"a vocabulary of {architecture.vocab:,} (padded to {vocabulary:,}) is not divisible by {tensor}"
    for block in architecture.blocks:
        if isinstance(block.ffn, Dense) and block.ffn.intermediate % tensor:
            yield f"a feed-forward width of {block.ffn.intermediate:,} is not divisible by {tensor}"


def _blocks_broken(architecture: Architecture, layout: Layout, resolved: Resolved) -> Iterator[str]:
    """Quantised matrices have a scale for every block of weights, and no GPU may get half a block."""
    quantization = resolved.quantization
    if quantization is None or layout.tensor == 1 or quantization.method not in {"fp8", "int4", "int8"}:
        return
    step = 128 if quantization.group == 128 * 128 else quantization.group
    if not step:
        return
    widths = {}
    for block in architecture.blocks:
        if isinstance(block.ffn, Dense):
            widths["feed-forward width"] = block.ffn.intermediate
        elif isinstance(block.ffn, Experts) and layout.expert == 1:
            widths["expert width"] = block.ffn.intermediate
    for what, width in widths.items():
        share = width / layout.tensor
        if share % step:
            cure = "; share the experts out whole instead (expert parallel)" if what == "expert width" else ""
            yield (
                f"each GPU's share of the {what} would be {share:g}, and {quantization.method} weights come in groups "
                f"of {step}{cure}"
            )


def check_room(stages: Sequence[Stage], resolved: Resolved, gpu: Gpu, *, measured: bool) -> None:
    """Raises PlanError when nothing is left for the cache, or for what is outside the budget. Unless the cache was
    `measured`, next to nothing is nothing: less than the estimate's own error."""
    for number, stage in enumerate(stages):
        least = 0.0 if measured else ERROR_SHARE * resolved.total_gib
        if stage.kv_gib <= least or (stage.cache.groups and stage.blocks < 1):
            how_much = "no room" if stage.kv_gib <= 0 else "less room than the estimate is sure of"
            where = f" on the GPUs of stage {number + 1}" if len(stages) > 1 else ""
            raise PlanError(
                f"{how_much} for the KV cache{where}: {account(stage, resolved)}. {_remedies(resolved, gpu)}",
                code="no_room_for_kv",
            )
    outside = (1 - resolved.utilization) * resolved.total_gib
    if resolved.budget == PROFILED and not resolved.enforce_eager and outside < OUTSIDE_GIB:
        at_most = int((1 - OUTSIDE_GIB / resolved.total_gib) * 100) / 100
        raise PlanError(
            f"a utilization of {resolved.utilization:g} leaves {outside:.2f} GiB of {resolved.total_gib:.2f} outside "
            f"the budget, and capturing CUDA graphs needs about {OUTSIDE_GIB} GiB there: the engine would size its "
            f"cache and then die. Use at most {at_most:g}.",
            code="utilization_too_high",
        )


def _remedies(resolved: Resolved, gpu: Gpu) -> str:
    remedies = ["more GPUs (tensor or pipeline parallel)"]
    if resolved.quantization is None:
        remedies.append("quantised weights")
    if resolved.utilization < HIGH_UTILIZATION:
        remedies.insert(0, f"a utilization up to {HIGH_UTILIZATION}")
    if resolved.max_num_seqs > 64 or resolved.max_num_batched_tokens > 2048:
        remedies.insert(0, "a smaller max_num_seqs and max_num_batched_tokens (the activation peak)")
    return "What helps: " + ", ".join(remedies) + "."


def check_one_request(stage: Stage, resolved: Resolved, held: int, longest: int, layout: Layout) -> None:
    """Raises PlanError when one request of max_model_len does not fit: every engine refuses to start then."""
    if held <= stage.blocks:
        return
    needed = held * stage.cache.block_bytes / 2**30
    raise PlanError(
        f"one request of max_model_len {resolved.max_model_len:,} needs {needed:.2f} GiB of KV cache on each GPU and "
        f"{stage.kv_gib:.2f} GiB are there: the engine refuses to start. The longest that fits is about {longest:,} "
        "tokens; for more: an 8-bit KV cache (--kv-cache-dtype fp8), more GPUs, a higher utilization.",
        code="max_model_len_does_not_fit",
    )


def states_are_short(stage: Stage, resolved: Resolved) -> bool:
    """Each of max_num_seqs requests needs a block for its recurrent state when graphs of decode steps are captured."""
    recurrent = any(group.cache.kind == "state" for group in stage.cache.groups)
    guarded = resolved.version >= defaults.STATE_FOR_EVERY_SEQUENCE_SINCE and not resolved.enforce_eager
    return recurrent and guarded and resolved.budget == PROFILED and resolved.max_num_seqs > stage.blocks


def check_states(stage: Stage, resolved: Resolved) -> None:
    """Raises PlanError where vLLM refuses to start: "max_num_seqs exceeds available Mamba cache blocks"."""
    if states_are_short(stage, resolved):
        raise PlanError(
            f"max_num_seqs {resolved.max_num_seqs:,} is more than the {stage.blocks:,} blocks of the cache, and each "
            "sequence needs one for its recurrent state: the engine refuses to start. Use at most "
            f"{stage.blocks:,}, or more memory.",
            code="max_num_seqs_too_high",
        )


def warnings(
    stages: Sequence[Stage], resolved: Resolved, architecture: Architecture, gpu: Gpu, graphs_gib: float
) -> Iterator[str]:
    """Sentences for whoever starts it."""
    yield from architecture.assumptions
    if resolved.budget != PROFILED:
        return
    if architecture.max_length and resolved.max_model_len > architecture.max_length:
        yield (
            f"max_model_len {resolved.max_model_len:,} is more than the {architecture.max_length:,} that the model was "
            "made for: the engine refuses it unless the positions are stretched (rope scaling in --hf-overrides)"
        )
    outside = (1 - resolved.utilization) * resolved.total_gib
    if resolved.version < defaults.GRAPHS_IN_BUDGET_SINCE and graphs_gib > outside:
        yield (
            f"about {graphs_gib:.2f} GiB of CUDA graphs come on top of the budget, and {outside:.2f} GiB are outside "
            "it: lower the utilization or run eagerly"
        )
    if gpu.consumer and resolved.utilization > CONSUMER_UTILIZATION:
        yield (
            f"{gpu.name} is a desktop card: a screen, the driver and fragmentation take memory that nobody counts; "
            f"{CONSUMER_UTILIZATION} is the usual utilization"
        )
    elif resolved.utilization > HIGH_UTILIZATION:
        yield (
            f"above a utilization of {HIGH_UTILIZATION} engines were seen to size their cache and then run out of "
            "memory in the sampler's warm-up"
        )
    cache = stages[0].cache
    if cache.promoted:
        yield "window layers hold their whole context: this version has no hybrid KV cache manager for such a model"
    elif len(cache.groups) > 1:
        yield (
            "the figures assume the hybrid KV cache manager; with it off (a connector, or a flag) the cache holds far "
            "fewer tokens. The number that the log prints has no fixed rate for such a model: plan by concurrency"
        )
    if architecture.vision and resolved.images * (resolved.image_tokens or 0) == 0:
        yield (
            "a vision model is profiled with its largest image; bound it by --limit-mm-per-prompt and max_pixels if "
            "start-up runs out of memory"
        )
