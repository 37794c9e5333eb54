"""What would change the answer: the numbers that it hangs on."""

from __future__ import annotations

from dataclasses import replace

from kilocard.core.errors import PlanError
from kilocard.perf.gpus import GPUS
from kilocard.planner.advice import FEW
from kilocard.planner.capacity import Limit
from kilocard.planner.doubt import Doubt, covers
from kilocard.planner.replica import Question
from kilocard.planner.search import Candidate, evaluate, search


def changes(question: Question, choice: Candidate, doubt: Doubt) -> tuple[str, ...]:
    """Sentences, the strongest first."""
    return (
        *_of_rate(question, choice),
        *_of_error(question, choice, doubt),
        *_of_loss(question, choice),
        *_of_objective(question, choice),
        *_of_link(question, choice),
        *_of_card(question, choice),
    )


def _of_rate(question: Question, choice: Candidate) -> list[str]:
    rate = question.demand.rate_per_s
    if rate is None or not choice.enough:
        return []
    most = choice.replicas * choice.capacity.requests_per_s * question.sizing.usable(choice.replicas)
    if most < rate <= most * (1 + question.sizing.slack):  # full: not one replica more, by the error of a measurement
        most = rate
    if most < rate:
        return [f"less load: at {most:.3g} requests/s the closed form would do with {choice.replicas} replicas"]
    return [f"a peak above {most:.3g} requests/s ({most / rate:.2f} times the one given): one more replica"]


def _of_error(question: Question, choice: Candidate, doubt: Doubt) -> list[str]:
    said = doubt.replicas_text(choice.replicas)
    if not said:
        return []
    return [f"speed, which is {question.speed}: {said}; {covers(doubt)}"]


def _of_loss(question: Question, choice: Candidate) -> list[str]:
    """What virtual time does not play of several replicas: hosts, links and a gateway that they share (R6)."""
    rate, sizing = question.demand.rate_per_s, question.sizing.if_lost()
    if rate is None or sizing is None or sizing.efficiency is None or choice.replicas == 1 or not choice.enough:
        return []
    lost, count = 1 - sizing.efficiency, sizing.replicas(rate, choice.capacity.requests_per_s)
    test = "bench one and two together, and give what two make of twice one as --scaling-efficiency"
    if count > choice.replicas:
        return [f"{lost:.0%} lost between replicas that share hosts or a network: {count} replicas; {test}"]
    spare = choice.replicas * choice.capacity.requests_per_s / rate - 1
    return [f"more than {spare / (1 + spare):.0%} lost between replicas that share hosts or a network: {test}"]


def _of_objective(question: Question, choice: Candidate) -> list[str]:
    demand, objective = question.demand, question.demand.objective
    if demand.rate_per_s is None or choice.capacity.limit not in {Limit.TTFT, Limit.TPOT}:
        return []
    is_ttft = choice.capacity.limit is Limit.TTFT
    other = replace(
        objective,
        ttft_s=objective.ttft_s * (2 if is_ttft else 1),
        tpot_s=objective.tpot_s * (1 if is_ttft else 2),
        asked_ttft=True,
        asked_tpot=True,
    )
    try:
        changed = evaluate(replace(question, demand=replace(demand, objective=other)), choice.gpu, choice.layout)
    except PlanError:
        return []
    name = "--slo-ttft" if is_ttft else "--slo-tpot"
    value = other.ttft_s if is_ttft else other.tpot_s
    if changed.replicas >= choice.replicas:
        return []
    return [f"twice the patience ({name} {value:g}): {changed.replicas} replicas instead of {choice.replicas}"]


def _of_link(question: Question, choice: Candidate) -> list[str]:
    """The same cards with the other link."""
    machines = question.machines
    if choice.layout.gpus == 1 or question.measured is not None or machines.topology is not None:
        return []
    other = "pcie" if machines.has_nvlink(choice.gpu) else "nvlink"
    found = search(replace(question, machines=replace(machines, link=other), gpus=(choice.gpu,))).candidates
    if not found or (found[0].layout == choice.layout and found[0].replicas == choice.replicas):
        return []
    name = "PCIe only" if other == "pcie" else "NVLink"
    best = found[0]
    return [
        f"cards with {name}: {best.layout} with {best.replicas} replica{'s' * (best.replicas > 1)}, "
        f"{best.capacity.expected.output_tokens_per_s * best.replicas:,.0f} output tokens/s at the limit"
    ]


def _of_card(question: Question, choice: Candidate) -> list[str]:
    """The cheapest stronger type of which one replica is enough, where a few of the chosen ones are needed (R6)."""
    rate = question.demand.rate_per_s
    if rate is None or question.measured is not None or not 1 < choice.replicas <= FEW:
        return []
    found = []
    for gpu in GPUS:
        if gpu.consumer or not gpu.capability or gpu.bandwidth_gb_s <= choice.gpu.bandwidth_gb_s:
            continue
        try:
            one = evaluate(question, gpu, choice.layout)
        except PlanError:
            continue
        if one.replicas == 1 and one.enough:
            found.append(one)
    if not found:
        return []
    best = min(found, key=lambda each: each.cost_per_hour)
    return [
        f"a stronger card: one replica on {best.gpu.name} carries it alone ({best.cost_per_hour:.2f} $/h against "
        f"{choice.cost_per_hour:.2f})"
    ]
