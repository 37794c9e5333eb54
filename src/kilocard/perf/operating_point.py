"""Throughput, TTFT and TPOT of a profile at a load, in closed form: means of the steady state, no simulation.

Continuous batching with chunked prefill. A request of I prompt and O output tokens meets `others` in the engine, of
which some decode and some are in their prefill; with it, B decode. Each other one brings its prompt once in its life,
by chance: a share q of the steps has prompt tokens in it, those steps are longer, and every decoding sequence waits
through them:

    mean step = (1 − q) × step(0, B) + q × step(prompt tokens, B)        = TPOT
    TTFT      = rest of the running step + steps scheduled ahead + the steps of its own prompt + waiting

C requests always in flight: others = C − 1. Arrivals by chance: others = rate × time in the engine (Little's law).

A benchmark's run is another thing than traffic. It begins with all C prompts at once, each waiting for those before it;
with R requests a stream (`rounds`) a share 1/R of its requests is in that wave. After it, a request comes when another
one ends, so just after a step has begun, at even distances: prompts seldom wait for each other. And from one's end to
the next one's first token `turnaround_steps` pass, through the client and back.

What does not fit (sequence slots, KV room) waits in the queue. Percentiles, preemption and bursts are sim.engine's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from kilocard.perf.profile import Profile

#: a sequence holds its whole prompt and, on average over its life, this share of its output
HELD = 0.6
ITERATIONS = 60
#: requests a stream in a benchmark's run: what InferenceX's scripts send, and about what others do
BENCHMARK_ROUNDS = 10


@dataclass(frozen=True, slots=True)
class Expected:
    """Means in the steady state. Infinite: it never comes (a rate above capacity)."""

    output_tokens_per_s: float
    ttft_s: float
    tpot_s: float
    requests_per_s: float
    #: in flight: running, and waiting for a slot
    concurrency: float
    running: float
    #: mean KV tokens held, a share of the room
    kv_share: float
    #: nothing more to be had: requests queue for a slot, KV room or the prompt's turn
    saturated: bool

    @property
    def e2e_s(self) -> float:
        return self.concurrency / self.requests_per_s if self.requests_per_s else math.inf


def most_running(profile: Profile, input_tokens: float, output_tokens: float, *, cached_tokens: float = 0.0) -> float:
    """Sequences that run at once: slots, or what the KV cache holds. R15: capacity is the KV that fits.

    Cached tokens are taken for a prefix that requests share: the cache holds it once.
    """
    held = input_tokens - cached_tokens + HELD * output_tokens
    return max(1.0, min(profile.max_num_seqs, (profile.kv_tokens - cached_tokens) / held))


def operating_point(
    profile: Profile,
    concurrency: float,
    input_tokens: float,
    output_tokens: float,
    *,
    cached_tokens: float = 0.0,
    rounds: float = math.inf,
) -> Expected:
    """`concurrency` requests always in flight, each of these lengths; `cached_tokens` of a prompt need no prefill.

    `rounds`: requests that each stream sends in a benchmark's run, which begins with all streams at once and has even
    lengths. Infinite: the steady state of people's requests, whose lengths differ, so that they come by chance.
    """
    _check(concurrency, input_tokens, output_tokens, cached_tokens)
    inside = min(concurrency, most_running(profile, input_tokens, output_tokens, cached_tokens=cached_tokens))
    endless, others, ahead = math.isinf(rounds), max(0.0, inside - 1), profile.steps_ahead
    if not endless:
        ahead += profile.turnaround_steps
    point = _steady(profile, others, input_tokens, output_tokens, cached_tokens, steps_ahead=ahead, chance=endless)
    together = _first_wave_s(profile, inside, input_tokens, cached_tokens) - point.ttft_s
    if together > 0:
        late = together / rounds
        point = replace(point, ttft_s=point.ttft_s + late, e2e_s=point.e2e_s + late)
    rate = inside / point.e2e_s
    waiting = (concurrency - inside) / rate
    return _expected(profile, point, rate, waiting, concurrency, inside, input_tokens - cached_tokens, output_tokens)


def capacity(profile: Profile, input_tokens: float, output_tokens: float, *, cached_tokens: float = 0.0) -> Expected:
    """The most that comes out when there is always more to do: every slot taken that fits."""
    most = most_running(profile, input_tokens, output_tokens, cached_tokens=cached_tokens)
    return operating_point(profile, most, input_tokens, output_tokens, cached_tokens=cached_tokens)


def at_rate(
    profile: Profile, requests_per_s: float, input_tokens: float, output_tokens: float, *, cached_tokens: float = 0.0
) -> Expected:
    """Requests that arrive by chance (Poisson), so many a second.

    At a rate above capacity the queue grows for ever: `ttft_s` is infinite, throughput and TPOT are capacity's.
    """
    if requests_per_s <= 0:
        raise ValueError(f"{requests_per_s} requests/s is no load")
    most = most_running(profile, input_tokens, output_tokens, cached_tokens=cached_tokens)
    full = capacity(profile, input_tokens, output_tokens, cached_tokens=cached_tokens)
    if requests_per_s >= full.requests_per_s:
        return replace(full, ttft_s=math.inf, concurrency=math.inf, saturated=True)
    low, high, ahead = 0.0, most, profile.steps_ahead
    for _ in range(ITERATIONS):
        middle = (low + high) / 2
        point = _steady(profile, middle, input_tokens, output_tokens, cached_tokens, steps_ahead=ahead, chance=True)
        low, high = (middle, high) if middle < requests_per_s * point.e2e_s else (low, middle)
        if high - low < 1e-6 * high:
            break
    point = _steady(profile, high, input_tokens, output_tokens, cached_tokens, steps_ahead=ahead, chance=True)
    waiting = _slot_wait(most, high, requests_per_s)
    inside = requests_per_s * point.e2e_s
    there = inside + waiting * requests_per_s
    return _expected(
        profile, point, requests_per_s, waiting, there, inside, input_tokens - cached_tokens, output_tokens
    )


def _expected(
    profile: Profile,
    point: _Steady,
    rate: float,
    waiting: float,
    concurrency: float,
    running: float,
    own_tokens: float,
    output_tokens: float,
) -> Expected:
    return Expected(
        output_tokens_per_s=rate * output_tokens,
        ttft_s=point.ttft_s + waiting,
        tpot_s=point.step_s if output_tokens > 1 else 0.0,
        requests_per_s=rate,
        concurrency=concurrency,
        running=running,
        kv_share=min(1.0, running * (own_tokens + HELD * output_tokens) / profile.kv_tokens),
        saturated=waiting * rate > 0.5 or point.budget_bound,
    )


@dataclass(frozen=True, slots=True)
class _Steady:
    """What one request sees, seconds."""

    ttft_s: float
    step_s: float
    e2e_s: float
    #: prompts wait for each other: the token budget is used up
    budget_bound: bool


def _steady(
    profile: Profile,
    others: float,
    input_tokens: float,
    output_tokens: float,
    cached: float,
    *,
    steps_ahead: float,
    chance: bool,
) -> _Steady:
    """The fixed point of `pace`: the share of another request's life that passes in one step.

    `chance`: requests come when they like. Else each takes the place of one that ended with a step: it comes as the
    next step begins, and others come at their own, even distances.
    """
    prompt = max(1.0, input_tokens - cached)
    before = input_tokens - prompt / 2  # tokens before each token of the prompt that is computed, on average
    context = input_tokens + output_tokens / 2
    steps = output_tokens - 1
    alone = min(1.0, steps)
    budget = profile.max_num_batched_tokens
    # all of the budget goes to tokens: no more requests pass than it has room for
    most = (budget - alone) / (others * (prompt + steps)) if others else math.inf
    busy = 1 - math.exp(-others)
    pace = min(most, 1 / (steps + 2))
    for _ in range(ITERATIONS):
        decoding = alone + others * steps * pace
        coming = others * prompt * pace
        room = max(1.0, budget - decoding)
        chunk = min(prompt, room)
        share = max(1 - math.exp(-coming / chunk), min(1.0, coming / room))
        lump = coming / share if share > 0 else chunk
        cache = decoding * context
        plain = profile.step_s(0, decoding, cache)
        mixed = profile.step_s(lump, decoding, cache, lump * before)
        mean = (1 - share) * plain + share * mixed
        if chance:
            # a long step gathers more prompts, which make the next one long: steps vary more than chance alone
            spread = 1 / (1 - min(0.9, share * (mixed - plain) / mean) ** 2)
            rest = busy * spread * ((1 - share) * plain**2 + share * mixed**2) / (2 * mean)
            along = 2 * rest / mean * coming
        else:
            rest = busy * mean
            along = max(0.0, coming - prompt)
        # its own prompt, and those that came while it waited
        beside = along * (mixed - plain) / lump if lump else 0.0
        own = prompt / chunk * profile.step_s(chunk, decoding, cache, chunk * before) + beside
        ttft = profile.request_s + rest + busy * steps_ahead * mean + own
        aim = min(most, mean / (ttft + steps * mean))
        if abs(aim - pace) < 1e-6 * pace:
            break
        pace = (pace + aim) / 2
    e2e = max(ttft + steps * mean, mean / pace if pace >= 0.999 * most else 0.0)
    return _Steady(e2e - steps * mean, mean, e2e, pace >= 0.999 * most)


def _first_wave_s(profile: Profile, streams: float, input_tokens: float, cached: float) -> float:
    """Mean TTFT of so many prompts that arrive at once: steps full of prompt tokens, one after the other."""
    prompt = max(1.0, input_tokens - cached)
    tokens = streams * prompt
    lump = min(tokens, profile.max_num_batched_tokens)
    # those that have got their first token decode along: half of all, on average over the wave
    decoding = streams / 2 if lump < tokens else 0.0
    full = profile.step_s(lump, decoding, decoding * input_tokens, lump * (input_tokens - prompt / 2))
    return profile.request_s + full * (tokens / lump + 1) / 2


def _slot_wait(most: float, running: float, rate: float) -> float:
    """Waiting for a slot when arrivals come by chance: half of M/M/c's mean (Sakasegawa), since lengths are even."""
    load = min(running / most, 0.999999)
    return float(load ** (math.sqrt(2 * (most + 1)) - 1) / (most * (1 - load)) * running / rate) / 2


def _check(concurrency: float, input_tokens: float, output_tokens: float, cached_tokens: float) -> None:
    if concurrency <= 0:
        raise ValueError(f"a concurrency of {concurrency} is no load")
    if input_tokens < 1 or output_tokens < 1:
        raise ValueError("prompt and output need at least one token each")
    if not 0 <= cached_tokens <= input_tokens:
        raise ValueError(f"{cached_tokens} cached tokens of a prompt of {input_tokens}")
