"""Look at every layout on every GPU type, drop what can't be with the reason, and put the rest in order of cost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from kilocard.core.errors import PlanError
from kilocard.perf.gpus import Gpu
from kilocard.perf.layout import Layout
from kilocard.perf.link import PCIE, PCIE_SOCKETS
from kilocard.perf.operating_point import Expected
from kilocard.perf.profile import Profile
from kilocard.planner.capacity import Capacity, capacity, point, shared_load
from kilocard.planner.layouts import layouts
from kilocard.planner.machine import Machines
from kilocard.planner.parameters import max_num_seqs
from kilocard.planner.replica import Question, Replica, build

#: candidates that cost at most this much more than the cheapest are its equals: `_rank` decides. The error of a
#: modelled speed is about as large.
NEAR = 1.1
#: how much better a doubtful layout must be before it is taken
DOUBT = 1.2
#: tensor groups over PCIe beyond a pair: what the AllReduce reaches there is assumed, and the cards share host bridges
PCIE_PAIR = 2
PCIE_LINKS = frozenset({PCIE.name, PCIE_SOCKETS.name})
#: share of the budget that the KV cache should have at least: with less, one long prompt empties the batch
LEAST_KV = 0.1


@dataclass(frozen=True, slots=True)
class Candidate(Replica):
    """One way that works. Rates and costs are of the whole cluster unless they say "each"."""

    capacity: Capacity
    replicas: int
    #: one replica at the load that is asked of it
    each: Expected
    #: it carries all that is asked, on the GPUs that there are
    enough: bool

    @property
    def gpus(self) -> int:
        return self.layout.gpus * self.replicas

    @property
    def cost_per_hour(self) -> float:
        return self.gpus * self.gpu.price_per_hour

    @property
    def output_tokens_per_s(self) -> float:
        return self.each.output_tokens_per_s * self.replicas

    @property
    def cost_per_million(self) -> float:
        """Of output tokens, at the load that is asked."""
        return self.cost_per_hour / (self.output_tokens_per_s * 3600 / 1e6)

    @property
    def capacity_cost(self) -> float:
        """Per million output tokens of what the replicas carry at their limit."""
        return self.layout.gpus * self.gpu.price_per_hour / (self.capacity.expected.output_tokens_per_s * 3600 / 1e6)


@dataclass(frozen=True, slots=True)
class Refusal:
    gpu: Gpu
    layout: Layout
    reason: str


@dataclass(frozen=True, slots=True)
class Found:
    #: as asked, with the objective that was held to
    question: Question
    #: best first
    candidates: tuple[Candidate, ...]
    refusals: tuple[Refusal, ...]


def search(question: Question) -> Found:
    """Raises nothing for what can't be: it is among the refusals."""
    built: list[Replica] = []
    refusals: list[Refusal] = []
    for gpu in question.gpus:
        for layout in layouts(question.architecture, question.machines, question.pins):
            try:
                built.append(build(question, gpu, layout))
            except PlanError as error:
                refusals.append(Refusal(gpu, layout, error.message))
    question = _eased(question, built)
    candidates: list[Candidate] = []
    for replica in built:
        try:
            candidates.append(_candidate(question, replica))
        except PlanError as error:
            refusals.append(Refusal(replica.gpu, replica.layout, error.message))
    return Found(question, tuple(_in_order(candidates, question)), tuple(refusals))


def evaluate(question: Question, gpu: Gpu, layout: Layout) -> Candidate:
    """One layout. Raises PlanError that says why it can't be, or can't do what is asked."""
    return _candidate(question, build(question, gpu, layout))


def _eased(question: Question, built: Iterable[Replica]) -> Question:
    """Where nobody asked for an objective: one that the best of the layouts can meet, the same for all of them."""
    alone = [point(replica.profile, 1, question.demand) for replica in built]
    if not alone:
        return question
    objective = question.demand.objective.eased(min(each.ttft_s for each in alone), min(each.tpot_s for each in alone))
    return replace(question, demand=replace(question.demand, objective=objective))


def _candidate(question: Question, replica: Replica) -> Candidate:
    _takes(question, replica)
    limit = capacity(replica.profile, question.demand)
    if limit is None:
        alone = point(replica.profile, 1, question.demand)
        raise PlanError(
            f"even one stream alone misses the objective: TTFT {alone.ttft_s:.2g} s, TPOT {alone.tpot_s * 1e3:.3g} ms"
        )
    if question.tunes and replica.setting.max_num_seqs is None:
        # Slots for what it carries and no more; smaller batches leave the sampler's memory to the KV cache.
        setting = replace(replica.setting, max_num_seqs=max_num_seqs(limit.concurrency / replica.layout.data))
        replica = build(question, replica.gpu, replica.layout, setting)
        again = capacity(replica.profile, question.demand)
        limit = limit if again is None else replace(again, limit=limit.limit)
    replicas, enough = _replicas(question, replica.layout, limit)
    each = at_load(question, replica.profile, limit, replicas)
    return Candidate(
        replica.gpu, replica.layout, replica.setting, replica.link, replica.memory, replica.profile, limit, replicas,
        each, enough,
    )  # fmt: skip


def _takes(question: Question, replica: Replica) -> None:
    """Raises PlanError where the usual request is longer than the engine accepts, or than a measured cache holds."""
    demand = question.demand
    tokens = demand.input_tokens + demand.output_tokens
    longest = min(replica.memory.max_model_len, replica.profile.kv_tokens)
    asked = question.tunes or demand.concurrency is not None  # else only the memory is looked at
    if asked and tokens > longest:
        what = "max-model-len" if longest == replica.memory.max_model_len else "the measured KV cache"
        raise PlanError(
            f"a request of {demand.input_tokens:,.0f} tokens in and {demand.output_tokens:,.0f} out does not fit in "
            f"{what}, {longest:,} tokens: the engine refuses it. Give the lengths that are asked for (--input, "
            "--output), or a longer --max-model-len"
        )


def _replicas(question: Question, layout: Layout, limit: Capacity) -> tuple[int, bool]:
    """(how many, is that enough?)"""
    demand, fit = question.demand, fits(question.machines, layout)
    if demand.rate_per_s is not None:
        need = question.sizing.replicas(demand.rate_per_s, limit.requests_per_s)
    elif demand.concurrency is not None:
        asked = demand.objective.asked_ttft or demand.objective.asked_tpot
        need = -(-demand.concurrency // limit.concurrency) if asked else 1
    else:
        need = 1 if fit is None else max(1, fit)  # all GPUs that somebody says there are
    if fit is None:
        return need, True
    return (need, True) if need <= fit else (max(1, fit), False)


def fits(machines: Machines, layout: Layout) -> int | None:
    """Replicas on the GPUs that there are; groups do not reach from one machine into the next. None: no bound."""
    most = machines.most
    if most is None:
        return None
    if layout.gpus > machines.per_node:
        return most // layout.gpus
    whole, rest = divmod(most, machines.per_node)
    in_whole = machines.groups(layout.tensor) // layout.pipeline
    return whole * in_whole + rest // layout.gpus


def at_load(question: Question, profile: Profile, limit: Capacity, replicas: int) -> Expected:
    """Means of one replica when so many share what is asked; at its limit where nothing is."""
    demand = question.demand
    if demand.rate_per_s is not None:
        return shared_load(profile, demand.rate_per_s, replicas, demand)
    if demand.concurrency is not None:
        return point(profile, demand.concurrency / replicas, demand)
    return limit.expected


def _in_order(candidates: Iterable[Candidate], question: Question) -> list[Candidate]:
    """Those that carry it first; then the cheapest; `_rank` decides among near ones.

    Without a load to carry: the most tokens from the GPUs that there are, or the cheapest tokens.
    """
    demand = question.demand
    load = demand.rate_per_s is not None or demand.concurrency is not None

    def cost(each: Candidate) -> float:
        if load and each.enough:
            return price(each)
        if question.machines.most is not None:  # the GPUs are there: what they give together
            return _doubt(each) / (each.capacity.expected.output_tokens_per_s * each.replicas)
        return each.capacity_cost * _doubt(each)

    ordered = sorted(candidates, key=lambda each: (not each.enough, cost(each)))
    if not ordered:
        return []
    best = ordered[0]
    near = [each for each in ordered if each.enough == best.enough and cost(each) <= NEAR * cost(best)]
    first = min(near, key=_rank)
    return [first, *(each for each in ordered if each is not first)]


def price(each: Candidate) -> float:
    """$/h of one that carries the load, with what speaks against it."""
    return each.cost_per_hour * _doubt(each)


def _doubt(each: Candidate) -> float:
    """What speaks against a layout and is not in its numbers, as a factor on its cost."""
    factor = 1.0
    if each.layout.tensor > PCIE_PAIR and each.link.name in PCIE_LINKS:
        factor *= DOUBT
    budget = each.memory.resolved.utilization * each.memory.total_gib
    least = LEAST_KV * budget
    if each.memory.kv_gib_per_gpu < least:  # the less there is, the more of it is the estimate's own error
        factor *= DOUBT * least / each.memory.kv_gib_per_gpu
    return factor


def _rank(each: Candidate) -> tuple[bool, int, int, float]:
    """Among equals: no doubts, fewer stages, experts cut rather than shared out, cheaper tokens at the limit."""
    return _doubt(each) > 1, each.layout.pipeline, each.layout.expert, each.capacity_cost
