"""One card, a better use of it, one more, or a cluster? By the ratio of what is wanted to what one card gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

#: up to here it is cheaper to optimise, to take a stronger card or to add one than to run a cluster
FEW = 3.0
#: beyond it a cluster has to be designed, not grown
MANY = 10.0
#: a multi-card replica that is not this much faster than a smaller one loses its cards to communication
GAIN = 1.5


class Verdict(StrEnum):
    STAY = "stay on one card"
    #: the model needs several cards; one such group is enough
    ONE_REPLICA = "stay on one replica"
    OPTIMISE = "optimise first"
    ADD = "add one card"
    ADD_REPLICA = "add one replica"
    CLUSTER = "cluster"


@dataclass(frozen=True, slots=True)
class Optimisation:
    """Something to try before more cards are bought."""

    what: str
    #: output tokens a second that a replica of as many cards then carries at the same objective
    output_tokens_per_s: float


@dataclass(frozen=True, slots=True)
class Advice:
    verdict: Verdict
    reasons: tuple[str, ...]
    #: T_target / T_0: wanted over what one replica gives at most; None: no rate was asked for
    ratio: float | None = None


def advise(
    *,
    target_tokens_per_s: float | None,
    replica_tokens_per_s: float,
    gpus_per_replica: int,
    replicas: int,
    usable: float,
    optimisations: Sequence[Optimisation] = (),
) -> Advice:
    """`replica_tokens_per_s` is T_0, output tokens a second of one replica at its limit; `usable` the share of it
    that a replica is given at the peak."""
    group = "card" if gpus_per_replica == 1 else f"replica ({gpus_per_replica} cards)"
    stay, add = _by_size(gpus_per_replica)
    if target_tokens_per_s is None:
        return Advice(
            stay if replicas == 1 else Verdict.CLUSTER,
            (
                f"no rate was given: one {group} makes up to {replica_tokens_per_s:,.0f} output tokens/s within the "
                "objective; say --rate and it is compared",
            ),
        )
    ratio = target_tokens_per_s / replica_tokens_per_s
    number = f"T_target / T_0 = {target_tokens_per_s:,.0f} / {replica_tokens_per_s:,.0f} output tokens/s = "
    number += f"{ratio:.3g}" if ratio < 100 else f"{ratio:,.0f}"
    if replicas == 1:
        return Advice(stay, (f"{number}: one {group} carries it, at {ratio:.0%} of its limit",), ratio)
    better = [each for each in optimisations if each.output_tokens_per_s * usable >= target_tokens_per_s]
    if ratio <= FEW and better:
        best = max(better, key=lambda each: each.output_tokens_per_s)
        return Advice(
            Verdict.OPTIMISE,
            (
                f"{number}, at most {FEW:g}",
                f"{best.what} would give {best.output_tokens_per_s:,.0f} output tokens/s: one {group} is then enough",
                f"without it: {replicas} replicas behind the gateway",
            ),
            ratio,
        )
    if ratio <= FEW:
        return Advice(
            add,
            (
                f"{number}, at most {FEW:g}: {_more(replicas - 1, gpus_per_replica)} behind the gateway, "
                "no parallelism across them",
            ),
            ratio,
        )
    size = (
        f"above {MANY:g}: design it as a cluster"
        if ratio > MANY
        else f"between {FEW:g} and {MANY:g}: a small cluster of replicas behind the gateway"
    )
    helps = [
        f"{each.what} would give {each.output_tokens_per_s:,.0f} output tokens/s a replica: try it first, it may save "
        f"{replicas - _count(target_tokens_per_s, each.output_tokens_per_s * usable)} replicas"
        for each in sorted(optimisations, key=lambda each: -each.output_tokens_per_s)[:1]
        if _count(target_tokens_per_s, each.output_tokens_per_s * usable) < replicas
    ]
    return Advice(Verdict.CLUSTER, (f"{number}, {size}", *helps), ratio)


def _by_size(gpus_per_replica: int) -> tuple[Verdict, Verdict]:
    """Stay, and add, in words for a replica of so many cards."""
    return (Verdict.STAY, Verdict.ADD) if gpus_per_replica == 1 else (Verdict.ONE_REPLICA, Verdict.ADD_REPLICA)


def _more(replicas: int, gpus_per_replica: int) -> str:
    if gpus_per_replica > 1:
        return f"{replicas} more replica{'s' * (replicas > 1)} ({gpus_per_replica} cards{' each' * (replicas > 1)})"
    return f"{replicas} more card{'s' * (replicas > 1)} as {'replicas' if replicas > 1 else 'a replica'}"


def advise_in_flight(
    asked: int,
    *,
    streams: int,
    replica_tokens_per_s: float,
    gpus_per_replica: int,
    replicas: int,
    shared_out: bool,
) -> Advice:
    """For requests that are always in flight. `streams`: how many of them one replica carries within the objective;
    `shared_out`: an objective was asked for, so there are as many replicas as meet it, and not one that holds all."""
    stay, add = _by_size(gpus_per_replica)
    group = "card" if gpus_per_replica == 1 else f"replica ({gpus_per_replica} cards)"
    number = (
        f"{asked:,} requests in flight / {streams:,} that one {group} carries within the objective "
        f"({replica_tokens_per_s:,.0f} output tokens/s) = {asked / streams:.3g}"
    )
    if replicas == 1:
        if asked <= streams:
            return Advice(stay, (f"{number}: one {group} carries them",))
        rest = (
            "there is room for no more"
            if shared_out
            else "as a benchmark would, all are sent to one; with --slo-ttft or --slo-tpot they are shared out"
        )
        return Advice(stay, (f"{number}: they wait or are slower than the objective. {rest}",))
    if replicas <= FEW:
        return Advice(add, (f"{number}: {replicas} replicas behind the gateway",))
    return Advice(Verdict.CLUSTER, (f"{number}: {replicas} replicas behind the gateway",))


def _count(target: float, each: float) -> int:
    return max(1, -int(-target // each))
