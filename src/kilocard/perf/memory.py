"""What fits: weights, peak, graphs and KV cache of one replica, as the engine itself will count them.

    vLLM          KV = utilisation × total − weights − activation peak − outside PyTorch (− CUDA graphs since 0.21)
    SGLang        KV = fraction × total − weights − outside PyTorch; graphs and activation live in the rest
    TensorRT-LLM  KV = fraction × (total − weights − activation − outside PyTorch)

Then tokens by blocks (kv_cache.py). All figures are of one GPU unless their name says otherwise; GiB is 2^30 bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kilocard.perf import engine_defaults as defaults
from kilocard.perf import feasible, model_runner
from kilocard.perf.activation import Activation, activation
from kilocard.perf.architecture import Architecture
from kilocard.perf.gpus import Gpu
from kilocard.perf.kv_cache import CacheLayout, cache_layout
from kilocard.perf.layout import Layout
from kilocard.perf.other_engines import trtllm_outside_gib
from kilocard.perf.setting import OF_FREE, PROFILED, EngineSetting, Resolved, resolve
from kilocard.perf.stage import Share, Stage, account
from kilocard.perf.weights import GIB, stage_range, weights

#: a context that is shorter than this is no answer to a question without max_model_len: refused like the engine does
WORTH_STARTING = 4096


@dataclass(frozen=True)
class Memory:
    """The account of one replica. `kv_tokens` is what vLLM prints as "GPU KV cache size"."""

    resolved: Resolved
    layout: Layout
    stages: tuple[Stage, ...]
    total_gib: float
    weights_gib_per_gpu: float
    activation_gib: float
    non_torch_gib: float
    #: GiB of CUDA graphs: what the engine sets aside for them when `graphs_in_budget`, else what they take outside it
    cuda_graph_gib: float
    graphs_in_budget: bool
    kv_gib_per_gpu: float
    kv_tokens: int
    kv_blocks: int
    #: tokens in a block of the finest cache group
    block_size: int
    #: requests of max_model_len tokens that fit at once
    max_concurrency: float
    max_model_len: int
    #: the longest max_model_len that one request could have
    largest_max_model_len: int
    #: bytes of cache that one more token of context takes on one GPU, beyond windows and states
    kv_bytes_per_token: float
    #: bytes that a request takes whatever its length (recurrent states, full windows)
    kv_bytes_fixed: float
    #: parameters × 2 bytes × 1.2 to 1.4, of the whole model (R7)
    rule_of_thumb_gib: tuple[float, float]
    warnings: tuple[str, ...] = ()
    assumed: tuple[tuple[str, str], ...] = ()

    @property
    def kv_gib_total(self) -> float:
        """Over all GPUs of the replica."""
        return sum(stage.kv_gib for stage in self.stages) * self.layout.tensor * self.layout.data

    @property
    def weights_gib_total(self) -> float:
        return sum(stage.weights.gib_per_gpu for stage in self.stages) * self.layout.tensor * self.layout.data

    def account(self) -> str:
        """The sum of the first stage's GPU in one line; rounded so that what is printed adds up."""
        return account(self.stages[0], self.resolved)


def memory(architecture: Architecture, gpu: Gpu, layout: Layout, setting: EngineSetting) -> Memory:
    """Raises PlanError with the reason when no engine could run this, UsageError for values that make no sense."""
    resolved = resolve(setting, architecture, gpu)
    if resolved.images == 0 and resolved.version >= defaults.TEXT_ONLY_SINCE:
        architecture = replace(architecture, tower_parameters=0)
    feasible.check_layout(architecture, layout, resolved)
    stages = _stages(architecture, gpu, layout, setting, resolved)
    measured = setting.kv_gib is not None
    feasible.check_room(stages, resolved, gpu, measured=measured)
    narrow = min(stages, key=lambda stage: stage.blocks)
    if setting.max_num_seqs is None and not measured and feasible.states_are_short(narrow, resolved):
        # nobody asked for the default: say how many start
        fewer = memory(architecture, gpu, layout, replace(setting, max_num_seqs=narrow.blocks))
        told = ("max_num_seqs", f"{narrow.blocks} (the default of {resolved.max_num_seqs} has no room for its states)")
        return replace(fewer, assumed=(*fewer.assumed, told))
    if not measured:
        feasible.check_states(narrow, resolved)
    in_flight = _in_flight(resolved, layout)
    length = resolved.max_model_len
    limit = architecture.max_length or length
    longest = narrow.cache.longest(narrow.blocks, in_flight, max(limit, length))
    if setting.max_model_len is None and WORTH_STARTING <= longest < length:
        # nobody asked for the whole context: say what fits
        length = longest // narrow.cache.block_size * narrow.cache.block_size or longest
        resolved = replace(resolved, max_model_len=length, assumed=_shortened(resolved, limit, length))
    held = narrow.cache.blocks_per_request(length, in_flight)
    graphs = _graphs_gib(architecture, resolved, layout, gpu)
    if narrow.cache.groups:
        feasible.check_one_request(narrow, resolved, held, longest, layout)
    concurrency = narrow.blocks / held if held else float(resolved.max_num_seqs)
    per_token, fixed = _rates(narrow.cache, length, in_flight)
    thumb = architecture.parameters * 2 / GIB
    first = stages[0]
    by_name = {share.name: share.gib for share in first.shares}
    return Memory(
        resolved=resolved,
        layout=layout,
        stages=stages,
        total_gib=resolved.total_gib,
        weights_gib_per_gpu=by_name["weights"],
        activation_gib=by_name.get("activation", 0.0),
        non_torch_gib=by_name.get("outside PyTorch", 0.0),
        cuda_graph_gib=graphs,
        graphs_in_budget="CUDA graphs" in by_name,
        kv_gib_per_gpu=first.kv_gib,
        kv_tokens=_tokens(narrow, resolved, concurrency) * layout.data,
        kv_blocks=narrow.blocks,
        block_size=narrow.cache.block_size,
        max_concurrency=concurrency * layout.data,
        max_model_len=length,
        largest_max_model_len=longest,
        kv_bytes_per_token=per_token,
        kv_bytes_fixed=fixed,
        rule_of_thumb_gib=(thumb * 1.2, thumb * 1.4),
        warnings=tuple(feasible.warnings(stages, resolved, architecture, gpu, graphs)),
        assumed=resolved.assumed + tuple(("model", each) for each in architecture.assumptions),
    )


def _shortened(resolved: Resolved, limit: int, length: int) -> tuple[tuple[str, str], ...]:
    others = tuple(each for each in resolved.assumed if each[0] != "max_model_len")
    return (*others, ("max_model_len", f"{length} (the model's {limit} don't fit)"))


def _stages(
    architecture: Architecture, gpu: Gpu, layout: Layout, setting: EngineSetting, resolved: Resolved
) -> tuple[Stage, ...]:
    """A pinned cache is the first stage's, which logs state; the others differ from it as they are predicted to."""
    found = [_stage(architecture, gpu, layout, setting, resolved, number) for number in range(layout.pipeline)]
    if setting.kv_gib is not None:
        shift = setting.kv_gib - found[0].kv_gib
        found = [_with_cache(stage, stage.kv_gib + shift) for stage in found]
    return tuple(found)


def _with_cache(stage: Stage, kv_gib: float) -> Stage:
    return replace(stage, kv_gib=kv_gib, blocks=stage.cache.blocks(max(0.0, kv_gib) * GIB))


def _stage(
    architecture: Architecture, gpu: Gpu, layout: Layout, setting: EngineSetting, resolved: Resolved, number: int
) -> Stage:
    own = weights(architecture, layout, resolved.quantization, plain_bytes=resolved.weight_bytes, stage=number)
    own_gib = own.gib_per_gpu if setting.weights_gib is None else setting.weights_gib
    last = number == layout.pipeline - 1
    peak = activation(architecture, layout, resolved, last=last)
    shares, budget, kv_gib = _shares(architecture, gpu, layout, resolved, own_gib, peak, last=last)
    cache = cache_layout(
        architecture.blocks, resolved, layout.tensor, stage_range(architecture, layout.pipeline, number)
    )
    return _with_cache(Stage(own, shares, budget, kv_gib, cache, 0), kv_gib)


def _shares(
    architecture: Architecture,
    gpu: Gpu,
    layout: Layout,
    resolved: Resolved,
    own_gib: float,
    peak: Activation,
    *,
    last: bool,
) -> tuple[tuple[Share, ...], float, float]:
    """Lines of the account, the budget that they share with the cache, and what is left for the cache."""
    outside = defaults.non_torch_gib(resolved.version, gpu, layout.tensor, layout.pipeline)
    held = Share("weights", own_gib)
    second = resolved.budget == PROFILED and model_runner.second(resolved.version, architecture)
    if second and layout.pipeline == 1:
        outside += min(0.0, model_runner.OUTSIDE_GIB - defaults.at(defaults.NON_TORCH, resolved.version).value)
    if resolved.budget == OF_FREE:
        outside = trtllm_outside_gib(gpu, layout.tensor, resolved.max_num_batched_tokens, architecture.hidden)
        shares = (held, Share("outside PyTorch", outside, "context, workspaces, communicators"))
        free = resolved.total_gib - own_gib - outside
        return shares, resolved.utilization * free + own_gib + outside, resolved.utilization * free
    budget = resolved.utilization * resolved.total_gib
    lines = [held, Share("outside PyTorch", outside, "context, communicators, workspaces")]
    if resolved.budget == PROFILED:
        lines.insert(1, Share("activation", peak.gib, peak.largest))
        if second and last:
            kept = model_runner.sampler_state_gib(architecture, resolved.max_num_seqs)
            lines.append(Share("sampler state", kept, "counts of every token for every sequence"))
        if _counts_graphs(resolved):
            graphs = _graphs_gib(architecture, resolved, layout, gpu)
            lines.append(Share("CUDA graphs", graphs, "estimated by the engine"))
    return tuple(lines), budget, budget - sum(line.gib for line in lines)


def _counts_graphs(resolved: Resolved) -> bool:
    return resolved.version >= defaults.GRAPHS_IN_BUDGET_SINCE and not resolved.enforce_eager


def _graphs_gib(architecture: Architecture, resolved: Resolved, layout: Layout, gpu: Gpu) -> float:
    """What the engine sets aside for them where it does, else what they take."""
    if resolved.enforce_eager:
        return 0.0
    if _counts_graphs(resolved):
        return model_runner.estimated_graphs_gib(
            architecture,
            resolved.version,
            resolved.max_num_seqs,
            tensor=layout.tensor,
            pipeline=layout.pipeline,
            most=defaults.largest_graph(gpu),
        )
    captured = defaults.captured_sizes(resolved.max_num_seqs)
    layers = -(-architecture.layers // layout.pipeline)
    return defaults.cuda_graph_gib(layers, experts=architecture.experts is not None, captured=captured)


def _in_flight(resolved: Resolved, layout: Layout) -> int:
    """Tokens that are scheduled and not yet settled: one batch, or two where the scheduler runs a step ahead."""
    ahead = 1
    if resolved.version >= defaults.TWO_STEPS_IN_FLIGHT_SINCE:
        ahead = layout.pipeline + 1
    return ahead * resolved.max_num_batched_tokens


def _tokens(stage: Stage, resolved: Resolved, concurrency: float) -> int:
    """What the log says: full blocks in older versions, concurrency × length in newer ones."""
    groups = stage.cache.groups
    if not groups:
        return 0
    if resolved.version >= defaults.TOKENS_BY_CONCURRENCY_SINCE:
        return int(concurrency * resolved.max_model_len)
    return stage.blocks // len(groups) * stage.cache.block_size


def _rates(cache: CacheLayout, length: int, in_flight: int) -> tuple[float, float]:
    """Bytes of one more token, and bytes that don't grow, of one request of `length` tokens on one GPU."""
    growing = [group for group in cache.groups if group.cache.kind == "full"]
    per_token = sum(cache.block_bytes / group.cache.block_size for group in growing)
    fixed = sum(group.cache.blocks_held(length, in_flight) for group in cache.groups if group not in growing)
    return per_token, float(fixed * cache.block_bytes)
