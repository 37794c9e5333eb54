"""From a question to a plan: search, size, try on virtual time, and say what it means."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from kilocard.core.errors import PlanError
from kilocard.planner.advice import Advice, advise, advise_in_flight
from kilocard.planner.disaggregation import Split, split_option
from kilocard.planner.doubt import Doubt, doubt
from kilocard.planner.fleet import MOST
from kilocard.planner.growth import Step, growth
from kilocard.planner.layouts import Pins
from kilocard.planner.optimise import optimisations
from kilocard.planner.parameters import OPEN, Parameter, explain
from kilocard.planner.pipeline import Stages, better_stages, usual_stages
from kilocard.planner.placement import Placement, placements
from kilocard.planner.replica import Question
from kilocard.planner.search import Candidate, Refusal, search
from kilocard.planner.sensitivity import changes
from kilocard.planner.settle import Settled, settle_best
from kilocard.planner.trial import Trial
from kilocard.planner.warnings import measured_is_slow, warnings

ALTERNATIVES = 3
#: closed form and virtual time agree within these shares (and 0.1 s of TTFT)
AGREE_TPOT, AGREE_TTFT = 0.15, 0.5


@dataclass(frozen=True, slots=True)
class Plan:
    question: Question
    choice: Candidate
    alternatives: tuple[Candidate, ...]
    refusals: tuple[Refusal, ...]
    advice: Advice
    #: None: no rate was asked for, so there is nothing to queue
    trial: Trial | None
    #: replicas that the closed form alone would have taken, where the trial wanted more
    before_trial: int
    growth: tuple[Step, ...]
    split: Split | None
    parameters: tuple[Parameter, ...]
    stages: Stages | None
    better_stages: Stages | None
    #: with a topology: the machine's groups for each tensor size, refused ones included
    placements: tuple[Placement, ...]
    warnings: tuple[str, ...]
    changes: tuple[str, ...]
    #: by how much speed may be wrong, and what that means in replicas
    doubt: Doubt

    @property
    def placement(self) -> Placement | None:
        """The choice's groups of GPUs in one machine; None without a topology, or for a group larger than it."""
        return next((each for each in self.placements if each.tensor == self.choice.layout.tensor), None)

    @property
    def trial_agrees(self) -> bool:
        """The closed form's means and the trial's are within the error of each other."""
        if self.trial is None or self.trial.tpot_s is None:
            return True
        expected, tried = self.choice.each, self.trial
        return abs(self.trial.tpot_s.mean - expected.tpot_s) <= AGREE_TPOT * expected.tpot_s and abs(
            tried.ttft_s.mean - expected.ttft_s
        ) <= max(AGREE_TTFT * expected.ttft_s, 0.1)


def plan(question: Question, rng: Random) -> Plan:
    """Raises PlanError with every reason where nothing works."""
    found = search(question)
    if not found.candidates:
        raise Impossible(found.question, found.refusals)
    question = found.question
    settled, rest = settle_best(question, found.candidates, rng)
    choice, tried = settled.choice, settled.trial
    modelled = _modelled(question)
    others = optimisations(question, choice)
    demand = question.demand
    target = demand.output_tokens_per_s
    tried_by = _as_tried(question, settled)
    unsure = doubt(
        choice.profile,
        tried_by.sizing,
        rate_per_s=demand.rate_per_s,
        each_per_s=choice.capacity.requests_per_s,
        replicas=choice.replicas,
    )
    pipeline = choice.layout.pipeline
    given = frozenset(name for name in OPEN if getattr(question.setting, name) is not None)
    return Plan(
        question=question,
        choice=choice,
        alternatives=_distinct([*rest, *(each for each in modelled if not _same(each, choice))]),
        refusals=found.refusals,
        advice=advise(
            target_tokens_per_s=target,
            replica_tokens_per_s=choice.capacity.expected.output_tokens_per_s,
            gpus_per_replica=choice.layout.gpus,
            replicas=_needed(question, choice),
            usable=question.sizing.usable(1),
            optimisations=others,
        )
        if demand.concurrency is None
        else advise_in_flight(
            demand.concurrency,
            streams=choice.capacity.concurrency,
            replica_tokens_per_s=choice.capacity.expected.output_tokens_per_s,
            gpus_per_replica=choice.layout.gpus,
            replicas=choice.replicas,
            shared_out=demand.objective.asked_ttft or demand.objective.asked_tpot,
        ),
        trial=tried,
        before_trial=settled.before,
        growth=_growth(tried_by, choice),
        split=_split(question, choice),
        parameters=explain(
            gpu=choice.gpu,
            utilization=choice.memory.resolved.utilization,
            outside_gib=choice.gpu.memory_gib * (1 - choice.memory.resolved.utilization),
            max_model_len=choice.memory.max_model_len,
            longest_request=question.longest,
            max_num_seqs=choice.memory.resolved.max_num_seqs,
            streams=math.ceil(choice.capacity.concurrency / choice.layout.data),
            limit=choice.capacity.limit.value,
            prefix_cache=True,
            ours=(OPEN - given) if question.tunes else frozenset(),
            given=given,
        ),
        stages=usual_stages(question.architecture, pipeline) if pipeline > 1 else None,
        better_stages=better_stages(question.architecture, pipeline) if pipeline > 1 else None,
        placements=_placements(question),
        warnings=(
            *warnings(question, choice, tried, forgiven=settled.forgiven),
            *measured_is_slow(choice, next((each for each in modelled if _same(each, choice)), None)),
        ),
        changes=changes(tried_by, choice, unsure),
        doubt=unsure,
    )


class Impossible(PlanError):
    """No layout works; `refusals` has every one of them with its reason."""

    def __init__(self, question: Question, refusals: Sequence[Refusal]) -> None:
        reasons = dict.fromkeys(f"{each.gpu.name} {each.layout}: {each.reason}" for each in refusals)
        lines = [f"  {reason}" for reason in reasons] or ["  no layout fits the GPUs, nodes and sizes that were given"]
        machines = question.machines
        if machines.network_gbit_s is None and (machines.most is None or machines.most > machines.per_node):
            lines.append(
                f"  a machine of {machines.per_node} GPUs may be too small: with --network GBIT (and --rdma) pipeline "
                "stages may cross machines"
            )
        super().__init__("\n".join(["nothing works:", *lines]))
        self.refusals = tuple(refusals)


def _needed(question: Question, choice: Candidate) -> int:
    """The choice's replicas; where the GPUs that there are hold too few, how many it would take."""
    rate = question.demand.rate_per_s
    if rate is None or choice.enough:
        return choice.replicas
    return max(choice.replicas, question.sizing.replicas(rate, choice.capacity.requests_per_s))


def _as_tried(question: Question, settled: Settled) -> Question:
    """The same question with the share of a replica that virtual time left: what is said of growth, of errors and of
    changes is then about the replicas that were planned."""
    rate, choice = question.demand.rate_per_s, settled.choice
    if rate is None or settled.trial is None or choice.replicas <= settled.before:
        return question
    sizing, each = question.sizing, choice.capacity.requests_per_s
    if (choice.replicas - 1) * each * sizing.usable(choice.replicas) < rate:
        return question  # the closed form does not say either that one replica fewer would carry it
    return replace(question, sizing=sizing.as_tried(rate, each, choice.replicas))


def _growth(question: Question, choice: Candidate) -> tuple[Step, ...]:
    """A replica is given what the plan gives it, or more where there is room: a step is no place to be full."""
    rate = question.demand.rate_per_s
    if rate is None:
        return ()
    usable = min(MOST, question.sizing.usable(choice.replicas)) * choice.capacity.requests_per_s
    planned = rate / choice.replicas if choice.enough else 0.0
    return growth(choice.replicas, max(usable, planned))


def _placements(question: Question) -> tuple[Placement, ...]:
    topology = question.machines.topology
    return () if topology is None else tuple(placements(topology, heads=question.architecture.heads or None))


def _modelled(question: Question) -> Sequence[Candidate]:
    """Beside a measured replica, which speaks of its own layout only: all layouts by the model of speed."""
    if question.measured is None:
        return ()
    return search(replace(question, measured=None, pins=Pins(), sizing=question.sizing.for_modelled())).candidates


def _same(one: Candidate, other: Candidate) -> bool:
    return (one.gpu, one.layout) == (other.gpu, other.layout)


def _distinct(candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """The next best; of layouts that differ in how experts are divided only the better one."""
    found: dict[tuple[str, int, int, int], Candidate] = {}
    for each in candidates:
        found.setdefault((each.gpu.name, each.layout.tensor, each.layout.pipeline, each.layout.data), each)
    return tuple(found.values())[:ALTERNATIVES]


def _split(question: Question, choice: Candidate) -> Split | None:
    demand = question.demand
    if demand.rate_per_s is None:
        return None
    return split_option(
        choice.profile,
        parameters=question.architecture.parameters,
        gpus=choice.gpus,
        replicas=choice.replicas,
        rate_per_s=demand.rate_per_s,
        input_tokens=demand.input_tokens,
        output_tokens=demand.output_tokens,
        kv_bytes_per_token=choice.memory.kv_bytes_per_token,
        concurrency=max(1.0, choice.each.running),
    )
