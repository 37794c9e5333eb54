"""The requests of one point: the same in the same order at every load, so that points differ in load alone. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random

from kilocard.bench.asked import Asked
from kilocard.workload.arrivals import Arrivals, AtOnce, Gamma, Poisson
from kilocard.workload.generate import generate
from kilocard.workload.request import WorkloadRequest
from kilocard.workload.sessions import sessions


def closed_loop(asked: Asked, rng: Random) -> Iterator[WorkloadRequest]:
    """Without end. Times say nothing: a request is sent when a slot is free."""
    if asked.chat is None:
        return generate(AtOnce(), asked.mix, rng)
    think_s = asked.chat.think_s
    # A conversation's turns come one after the other here; whoever sends them holds a turn back until it is due.
    turns = sessions(replace(asked.chat, think_s=0.0), AtOnce(), rng)
    pauses = Random(rng.getrandbits(64))  # noqa: S311  # nothing secret is drawn
    return (_thinking(turn, think_s, pauses) for turn in turns)


def open_loop(asked: Asked, rate_per_s: float, rng: Random) -> Iterator[WorkloadRequest]:
    """Without end, in order of at_s. With conversations the rate is still that of requests: fewer of them begin."""
    if asked.chat is None:
        return generate(_arrivals(rate_per_s, asked.burstiness), asked.mix, rng)
    return sessions(asked.chat, _arrivals(rate_per_s / asked.chat.turns.mean, asked.burstiness), rng)


def _arrivals(rate_per_s: float, burstiness: float) -> Arrivals:
    return Poisson(rate_per_s) if burstiness == 1.0 else Gamma.of_burstiness(rate_per_s, burstiness)


def _thinking(turn: WorkloadRequest, mean_s: float, rng: Random) -> WorkloadRequest:
    return replace(turn, think_s=rng.expovariate(1 / mean_s)) if turn.turn and mean_s else turn
