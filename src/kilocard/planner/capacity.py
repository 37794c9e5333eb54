"""What one replica can carry: the most streams at once that still meet the objective, and what stops there."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum

from kilocard.perf.operating_point import BENCHMARK_ROUNDS, Expected, at_rate, most_running, operating_point
from kilocard.perf.profile import Profile
from kilocard.planner.demand import Demand

#: throughput that grows less than this when streams double is flat: the GPU is the limit, not the streams
FLAT = 1.15
#: share of the most tokens at which the curve of tokens against streams counts as bent
BEND = 0.97


class Limit(StrEnum):
    """What keeps a replica from carrying more (requirement R2)."""

    MEMORY = "memory: the KV cache is full"
    COMPUTE = "compute: more streams bring no more tokens"
    ADMISSION = "admission: max-num-seqs"
    TTFT = "time to first token"
    TPOT = "time per token"


@dataclass(frozen=True, slots=True)
class Capacity:
    #: streams at once
    concurrency: int
    expected: Expected
    limit: Limit
    #: streams that fit: slots, or KV room at these lengths
    room: int

    @property
    def requests_per_s(self) -> float:
        return self.expected.requests_per_s


def point(profile: Profile, concurrency: float, demand: Demand) -> Expected:
    """Streams that are asked for are those of a benchmark's run, which begins with all of them at once."""
    rounds = math.inf if demand.concurrency is None else BENCHMARK_ROUNDS
    return operating_point(profile, concurrency, demand.input_tokens, demand.output_tokens, rounds=rounds)


def capacity(profile: Profile, demand: Demand) -> Capacity | None:
    """None where not even one stream meets the objective that was asked for."""
    room = int(most_running(profile, demand.input_tokens, demand.output_tokens))
    alone = point(profile, 1, demand)
    objective = demand.objective
    if not objective.met(alone.ttft_s, alone.tpot_s):
        return None
    low, high = 1, room
    while low < high:  # both latencies grow with the streams
        middle = (low + high + 1) // 2
        there = point(profile, middle, demand)
        if objective.met(there.ttft_s, there.tpot_s):
            low = middle
        else:
            high = middle - 1
    limit = _limit(profile, low, room, demand)
    if limit not in {Limit.ADMISSION, Limit.MEMORY}:
        low = _bend(profile, low, point(profile, low, demand).output_tokens_per_s, demand)
    return Capacity(low, point(profile, low, demand), limit, room)


def _bend(profile: Profile, most: int, tokens_per_s: float, demand: Demand) -> int:
    """Fewest streams that give nearly all of what `most` give: past it more streams wait longer for nothing (R4)."""
    low, high = 1, most
    while low < high:
        middle = (low + high) // 2
        if point(profile, middle, demand).output_tokens_per_s >= BEND * tokens_per_s:
            high = middle
        else:
            low = middle + 1
    return low


def shared_load(profile: Profile, rate_per_s: float, replicas: int, demand: Demand) -> Expected:
    """Means of one of `replicas` that share a rate. They share one queue too: the gateway holds what finds no slot, so
    a request waits only while all of them are full."""
    rate = rate_per_s / replicas
    alone = at_rate(profile, rate, demand.input_tokens, demand.output_tokens)
    if math.isinf(alone.ttft_s) or replicas == 1:
        return alone
    served = point(profile, alone.running, demand)
    slots = replicas * most_running(profile, demand.input_tokens, demand.output_tokens)
    waiting = _wait(slots, replicas * alone.running, rate_per_s)
    return replace(alone, ttft_s=served.ttft_s + waiting, concurrency=alone.running + waiting * rate)


def _wait(slots: float, running: float, rate_per_s: float) -> float:
    """Seconds for a free slot, on average: M/M/c by Sakasegawa's approximation."""
    load = min(running / slots, 1 - 1e-6)
    return float(load ** (math.sqrt(2 * (slots + 1)) - 1) / (slots * (1 - load)) * running / rate_per_s)


def _limit(profile: Profile, concurrency: int, room: int, demand: Demand) -> Limit:
    if concurrency < room:
        after = point(profile, concurrency + 1, demand)
        return Limit.TPOT if after.tpot_s > demand.objective.tpot_s else Limit.TTFT
    half = point(profile, max(1.0, concurrency / 2), demand)
    if concurrency > 1 and point(profile, concurrency, demand).output_tokens_per_s < FLAT * half.output_tokens_per_s:
        return Limit.COMPUTE
    return Limit.ADMISSION if room >= profile.max_num_seqs else Limit.MEMORY
