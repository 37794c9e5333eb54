"""From the outside one can see whether an engine schedules a step ahead."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from kilocard.perf.builtin import CPU_SMOL
from kilocard.perf.seen_ahead import steps_ahead
from kilocard.perf.seen_steps import Stream
from kilocard.sim.played import Asked, play

BUDGET = CPU_SMOL.max_num_batched_tokens


def streams(ahead: float, *, slots: int | None, count: int = 80, jitter_s: float = 0.001) -> list[Stream]:
    """As a client sees them, each token a little late. `slots` None: arrivals by chance."""
    rng = Random(4)
    profile = replace(CPU_SMOL, steps_ahead=ahead, request_s=0.004)
    at_s = 0.0
    requests = []
    for _ in range(count):
        at_s += rng.expovariate(1.5)
        requests.append(Asked(rng.randint(20, 200), rng.randint(20, 60), at_s=at_s))
    return [
        Stream(
            each.sent_s,
            each.asked.prompt,
            tokens_s=tuple(sorted(at + abs(rng.gauss(0, jitter_s)) for at in each.tokens_s)),
        )
        for each in play(profile, requests, concurrency=slots)
    ]


@pytest.mark.parametrize("ahead", [0, 1])
@pytest.mark.parametrize("slots", [2, 6, None])
def test_an_engine_that_schedules_ahead_is_told_from_one_that_does_not(ahead: int, slots: int | None) -> None:
    seen = [streams(ahead, slots=slots)]
    assert steps_ahead(seen, request_s=0.004, budget=BUDGET) == ahead


@pytest.mark.parametrize("ahead", [0, 1])
def test_loads_at_which_requests_wait_for_a_slot_do_not_hide_it(ahead: int) -> None:
    seen = [streams(ahead, slots=slots) for slots in (1, 4, 8, CPU_SMOL.max_num_seqs + 4)]
    assert steps_ahead(seen, request_s=0.004, budget=BUDGET) == ahead


def test_one_stream_at_a_time_shows_nothing() -> None:
    assert steps_ahead([streams(1, slots=1)], request_s=0.004, budget=BUDGET) is None
    assert steps_ahead([], request_s=0.0, budget=BUDGET) is None
