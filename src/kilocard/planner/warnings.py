"""What the reader has to know before he buys: hops that cost, caches that are not divided, load that is not met."""

from __future__ import annotations

import math
from dataclasses import replace

from kilocard.core.errors import PlanError, UsageError
from kilocard.perf import engine_defaults as defaults
from kilocard.perf.gpus import gpu as find_gpu
from kilocard.perf.link import PCIE, PCIE_SOCKETS
from kilocard.perf.setting import PROFILED
from kilocard.planner.advice import GAIN
from kilocard.planner.capacity import Limit
from kilocard.planner.fleet import MOST, is_full
from kilocard.planner.placement import placement
from kilocard.planner.replica import Question
from kilocard.planner.search import Candidate, evaluate
from kilocard.planner.trial import Trial

#: between machines: below this TP loses against one machine, and pipelines and weights crawl
_LEAST_NETWORK = 10.0
#: modelled over measured from which something is wrong with the measured replica, not with the model
_SLOW = 1.5
#: requests at once below which a replica is one user's
_FEW_STREAMS = 10
#: share of the KV cache that one request may take before it counts as too long
_LARGE_REQUEST = 0.25
#: seconds of waiting, in a steady state that no peak is long enough to reach
_ENDLESS_S = 60.0


def warnings(question: Question, choice: Candidate, tried: Trial | None, *, forgiven: bool = False) -> tuple[str, ...]:
    """`forgiven`: p95 misses, by less than the error of a measurement."""
    return (
        *_of_card(question, choice),
        *_of_profile(question, choice),
        *_of_load(question, choice, tried, forgiven=forgiven),
        *_of_full(question, choice, tried),
        *_of_length(question, choice),
        *_of_room(question, choice),
        *_of_links(question, choice),
        *_of_gain(question, choice),
        *_of_latent_cache(question, choice),
    )


def measured_is_slow(choice: Candidate, modelled: Candidate | None) -> tuple[str, ...]:
    """A measurement far below what the model of speed expects of the same replica: look there before buying."""
    if modelled is None:
        return ()
    measured, expected = choice.capacity.expected.output_tokens_per_s, modelled.capacity.expected.output_tokens_per_s
    if expected < _SLOW * measured:
        return ()
    return (
        f"the speed model expects {expected / measured:.1f} times the measured {measured:,.0f} output tokens/s, with "
        f"{modelled.capacity.concurrency} streams instead of {choice.capacity.concurrency}: raise max-num-seqs and "
        "measure again before buying",
    )


def _of_load(question: Question, choice: Candidate, tried: Trial | None, *, forgiven: bool) -> list[str]:
    found = []
    demand = question.demand
    if not choice.enough:
        have = f"{choice.replicas} replica{'s' * (choice.replicas > 1)} of {choice.layout}"
        limit = choice.capacity.requests_per_s * choice.replicas * question.sizing.usable(choice.replicas)
        found.append(
            f"the GPUs that there are do not carry it: {have} take {limit:.3g} requests/s of {demand.rate_per_s:g}"
            if demand.rate_per_s is not None
            else f"the GPUs that there are do not carry {demand.concurrency} streams within the objective"
        )
    elif tried is not None:
        objective = question.demand.objective
        but = (
            f"; replicas {question.sizing.slack:.0%} faster meet it, and two load tests differ by more: "
            f"{choice.replicas + 1} replicas are the safe side"
            if forgiven
            else ""
        )
        if tried.ttft_s.p95 > objective.ttft_s:
            found.append(f"on virtual time TTFT p95 is {tried.ttft_s.p95:.3g} s, above {objective.ttft_s:g} s{but}")
        if tried.tpot_s is not None and tried.tpot_s.p95 > objective.tpot_s:
            tpot, most = tried.tpot_s.p95 * 1e3, objective.tpot_s * 1e3
            found.append(f"on virtual time TPOT p95 is {tpot:.3g} ms, above {most:g} ms{but}")
    if tried is not None and tried.preemptions:
        found.append(
            f"{tried.preemptions} preemptions on virtual time: the KV cache is full at times; lower max-num-seqs"
        )
    if tried is not None and tried.refused:
        found.append(
            f"{tried.refused} requests were too long for a replica's max-model-len or KV cache: they are refused, and "
            "no number here counts them"
        )
    if tried is not None and tried.turned_away:
        found.append(f"the gateway turned {tried.turned_away} requests away on virtual time: no place came free")
    return found


def _of_full(question: Question, choice: Candidate, tried: Trial | None) -> list[str]:
    """Near their limit replicas meet an objective for as long as a peak lasts, and not for ever."""
    rate, each = question.demand.rate_per_s, choice.capacity.requests_per_s
    if tried is None or rate is None or not choice.enough or not is_full(rate, each, choice.replicas):
        return []
    safe = math.ceil(rate / (MOST * each) - 1e-9)
    mean = choice.each.ttft_s
    on = f"TTFT would come to {mean:.2g} s on average if it never ended"
    if mean > _ENDLESS_S:
        on = "the queue grows on"
    return [
        f"the peak takes {rate / (each * choice.replicas):.0%} of the replicas' limit. Virtual time played "
        f"{tried.seconds:.0f} s of it; while it lasts longer requests wait longer ({on}). {safe} replicas run at "
        f"{rate / (each * safe):.0%}"
    ]


def _of_card(question: Question, choice: Candidate) -> list[str]:
    """A card that the engine has no code for any more."""
    capability, resolved = choice.gpu.capability, choice.memory.resolved
    least = defaults.least_capability(resolved.version)
    if resolved.budget != PROFILED or not 0 < capability < least:
        return []
    return [
        f"{choice.gpu.name} has compute capability {capability / 10:g}, and vLLM of this version is built for "
        f"{least / 10:g} and above: it does not start unless you build it for the card"
        + ("; 0.10 was built for 7.0" if capability >= defaults.least_capability((0, 10)) else "")
    ]


def _of_profile(question: Question, choice: Candidate) -> list[str]:
    """A speed that is another card's."""
    measured = question.measured
    if measured is None or not measured.gpu:
        return []
    try:
        own = find_gpu(measured.gpu).name
    except UsageError:
        return []  # a card that is not in the catalogue: nobody can tell
    if own == choice.gpu.name:
        return []
    return [f"the profile is of {own}, and the plan is for {choice.gpu.name}: its speed is not this card's"]


def _of_length(question: Question, choice: Candidate) -> list[str]:
    """The engine's limit against what is asked, and against what the model was made for."""
    limit, own = choice.memory.max_model_len, question.architecture.max_length
    if not question.tunes and question.demand.concurrency is None:
        return []  # no lengths were asked for
    if question.longest > limit:
        return [
            f"requests of up to {question.longest:,} tokens are expected and max-model-len is {limit:,}: the engine "
            "refuses what is longer"
        ]
    if own is not None and limit > own:
        return [
            f"requests of up to {question.longest:,} tokens are more than the {own:,} that the model was made for: the "
            "engine does not start with such a max-model-len unless the positions are stretched (rope scaling)"
        ]
    return []


def _of_room(question: Question, choice: Candidate) -> list[str]:
    """Signals that one card is too small for the work (requirement R1)."""
    found = []
    room = choice.capacity.room
    if choice.capacity.limit is Limit.MEMORY and room < _FEW_STREAMS:
        found.append(f"only {room} requests of these lengths fit at once: the KV cache runs out first, not speed")
    share = question.longest / max(1, choice.memory.kv_tokens)
    if share > _LARGE_REQUEST:
        found.append(
            f"one request of {question.longest:,} tokens takes {share:.0%} of a replica's KV cache: long contexts "
            "starve the others; give them a pool of their own"
        )
    return found


def _of_links(question: Question, choice: Candidate) -> list[str]:
    layout, machines = choice.layout, question.machines
    found: list[str] = []
    if machines.topology is not None and layout.tensor > 1:
        found += placement(machines.topology, layout.tensor).warnings
    elif layout.tensor > 1 and choice.link.name in {PCIE.name, PCIE_SOCKETS.name}:
        found.append(
            f"TP{layout.tensor} over PCIe: every layer waits for two AllReduces; measure it against fewer GPUs a group"
        )
    if layout.tensor > machines.per_node:
        found.append(
            f"TP{layout.tensor} crosses machines: 1 GbE was 30 % below one machine, 25 GbE is the first to win. "
            "Measure with iperf3 or ib_write_bw, don't trust the label"
        )
    crosses = layout.gpus > machines.per_node
    if crosses and (machines.network_gbit_s or 0) < _LEAST_NETWORK:
        found.append(f"{machines.network_gbit_s:g} Gbit/s between machines: want 10 at least, RDMA better")
    if crosses:
        found.append("one driver, CUDA and engine version on every machine: one that differs gives illegal accesses")
    return found


def _of_gain(question: Question, choice: Candidate) -> list[str]:
    """A group that makes less than 1.5 times what half of its cards make loses them to communication (R6)."""
    layout = choice.layout
    if layout.tensor < 2 or layout.tensor % 2 or question.measured is not None:
        return []
    expert = max(1, layout.expert // 2)
    try:
        half = evaluate(question, choice.gpu, replace(layout, tensor=layout.tensor // 2, expert=expert))
    except PlanError:
        return []  # half of the cards are too few for the model: nothing to compare with
    gain = choice.capacity.expected.output_tokens_per_s / half.capacity.expected.output_tokens_per_s
    if gain >= GAIN:
        return []
    return [
        f"TP{layout.tensor} makes only {gain:.2f} times the tokens of TP{layout.tensor // 2}: communication eats the "
        "rest; use more replicas of the smaller group"
    ]


def _of_latent_cache(question: Question, choice: Candidate) -> list[str]:
    layout = choice.layout
    if layout.data > 1:
        return [
            f"data-parallel attention: one GPU of the {layout.data} prefills a request alone, so the first token of a "
            "long prompt comes later than the mean says; and the busiest rank sets the pace of all",
        ]
    latent = any(group.kind == "mla" for group in question.architecture.layer_groups)
    if not latent or layout.tensor == 1:
        return []
    return [
        f"MLA has one latent KV head: each of the {layout.tensor} GPUs keeps the whole cache. Data-parallel attention "
        f"(data-parallel-size {layout.tensor}, enable-expert-parallel) holds about {layout.tensor} times the tokens"
    ]
