"""An engine's steps, reconstructed from what clients saw of its streams.

Continuous batching gives every decoding sequence one token a step, so the gap between two tokens of one stream is the
step's duration, and what arrived from all streams together in that time is the step's batch:

    stream A   ──●────●────●──────────●────●          each ● a token; the long gap is the step
    stream B                          ○────●────●     in which B's prompt was prefilled (○: its first token)

A chain of streams, each followed until it ends, passes through all steps in which anybody decoded, each once. Steps
that only prefill show as the time to first token of a request that found the engine idle.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import accumulate, pairwise, zip_longest
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Stream:
    """One request, as its client saw it. Seconds on one clock; tokens."""

    sent_s: float
    prompt: int
    #: prompt tokens that the prefix cache spared
    cached: int = 0
    #: when each output token came; empty: none did
    tokens_s: tuple[float, ...] = ()
    #: False: tokens came several at a time, so that the times are interpolated
    exact: bool = True


class Watched(NamedTuple):
    """All streams of one load from `since_s` on; of what ran before it, some may be missing."""

    streams: Sequence[Stream]
    since_s: float = -math.inf


class Step(NamedTuple):
    """What the engine did in one step. Sums over the batch."""

    prefill_tokens: float
    decode_seqs: int
    #: context lengths, a prompt's included in the step that completes it
    kv_read: float
    #: token pairs of prefill attention, as Profile.step_s counts them
    attended: float


@dataclass(frozen=True, slots=True)
class Window:
    """Steps in a row and how long they took together."""

    duration_s: float
    steps: tuple[Step, ...]
    #: seen from the request's sending on: what a request costs outside the engine is in the duration
    from_sending: bool = False


def windows(watched: Watched, *, budget: int, length: int = 8) -> list[Window]:
    """All windows of up to `length` steps. `budget`: tokens that a step takes at most (max-num-batched-tokens)."""
    streams, since_s = watched
    seen = _Seen(streams, budget)
    found = []
    for whole in _chains(streams):
        chain = whole[bisect_left(whole, since_s) :]
        steps = seen.steps(chain)
        for start in range(0, len(steps), length):
            end = min(start + length, len(steps))
            found.append(Window(chain[end] - chain[start], tuple(steps[start:end])))
    return found + _from_idle(watched, budget)


class _First(NamedTuple):
    at_s: float
    stream: Stream


class _Seen:
    """Everything that arrived, in order of time, with running sums: what came between two moments costs a bisection."""

    def __init__(self, streams: Sequence[Stream], budget: int) -> None:
        decoded = sorted(
            (at_s, stream.prompt + place) for stream in streams for place, at_s in enumerate(stream.tokens_s) if place
        )
        self._decoded_s = [at_s for at_s, _ in decoded]
        self._context = [0, *accumulate(context for _, context in decoded)]
        self._firsts = sorted((_First(each.tokens_s[0], each) for each in streams if each.tokens_s), key=_at)
        self._firsts_s = [each.at_s for each in self._firsts]
        self._budget = budget

    def steps(self, ends: Sequence[float]) -> list[Step]:
        """The steps between these moments. What arrives nearest to a step's end came out of it."""
        middles = [(before + after) / 2 for before, after in pairwise(ends)]
        edges = [*middles, ends[-1] + (ends[-1] - middles[-1])] if middles else []
        found: list[Step] = []
        firsts: list[list[Stream]] = []
        for begin, end in pairwise(edges):
            low, high = bisect_right(self._decoded_s, begin), bisect_right(self._decoded_s, end)
            first, last = bisect_right(self._firsts_s, begin), bisect_right(self._firsts_s, end)
            came = [each.stream for each in self._firsts[first:last]]
            kv_read = self._context[high] - self._context[low] + sum(each.prompt for each in came)
            found.append(Step(0, high - low, kv_read, 0))
            firsts.append(came)
        self._prefills(found, firsts)
        return found

    def _prefills(self, steps: list[Step], firsts: Sequence[Sequence[Stream]]) -> None:
        """A prompt that is longer than a step's budget was prefilled in the steps before its first token, too."""
        filled = [0.0] * len(steps)
        pairs = [0.0] * len(steps)
        for place in range(len(steps) - 1, -1, -1):
            for stream in firsts[place]:
                for at, tokens, before in self._chunks(stream, place, steps, filled):
                    filled[at] += tokens
                    pairs[at] += tokens * (before + tokens / 2)
        for place, step in enumerate(steps):
            steps[place] = step._replace(prefill_tokens=filled[place], attended=pairs[place])

    def _chunks(
        self, stream: Stream, place: int, steps: Sequence[Step], filled: Sequence[float]
    ) -> Iterator[tuple[int, float, float]]:
        """(step, tokens, tokens computed before them), the last step first. Earlier steps are full, it has the rest."""
        left = float(stream.prompt - stream.cached)
        rooms = []
        for at in range(place, -1, -1):
            room = max(self._budget - steps[at].decode_seqs - filled[at], 0)
            rooms.append((at, min(room, left)))
            left -= rooms[-1][1]
            if left <= 0:
                break
        # What does not fit into the chain was prefilled before it began. The rest falls to the last step.
        if len(rooms) > 1:
            (last, had), (earliest, rest) = rooms[0], rooms[-1]
            if rest < had:
                rooms[0], rooms[-1] = (last, rest), (earliest, had)
        computed = float(stream.prompt)
        for at, tokens in rooms:
            computed -= tokens
            if tokens:
                yield at, tokens, computed


def _chains(streams: Sequence[Stream]) -> Iterator[list[float]]:
    """Ends of steps in a row: the longest-lasting stream's tokens, then the next one's from the same step on."""
    waiting = sorted((each for each in streams if each.exact and len(each.tokens_s) > 1), key=_first, reverse=True)
    running: list[tuple[float, int, Stream]] = []  # a heap: the longest-lasting first
    chain: list[float] = []
    count = 0
    while waiting or running:
        while waiting and (not chain or waiting[-1].tokens_s[0] <= chain[-1]):
            stream = waiting.pop()
            heappush(running, (-stream.tokens_s[-1], count, stream))
            count += 1
            if not chain:
                chain = [stream.tokens_s[0]]
        while running and -running[0][0] <= chain[-1]:
            heappop(running)
        if not running:
            yield chain
            chain = []
            continue
        times = heappop(running)[2].tokens_s
        # Its token nearest to the chain's end came out of the same step.
        at = bisect_left(times, chain[-1])
        if at and (at == len(times) or chain[-1] - times[at - 1] < times[at] - chain[-1]):
            at -= 1
        chain += times[at + 1 :]
    if chain:
        yield chain


def _from_idle(watched: Watched, budget: int) -> list[Window]:
    """Requests whose prompt, in one step, was all that the engine had to do."""
    found = []
    busy_until = watched.since_s
    ordered = sorted(watched.streams, key=lambda each: each.sent_s)
    for stream, after in zip_longest(ordered, ordered[1:]):
        computed = stream.prompt - stream.cached
        idle = stream.sent_s > busy_until and computed <= budget
        if idle and stream.tokens_s and (after is None or after.sent_s >= stream.tokens_s[0]):
            step = Step(computed, 0, stream.prompt, computed * (stream.cached + computed / 2))
            found.append(Window(stream.tokens_s[0] - stream.sent_s, (step,), from_sending=True))
        # One that never answered may have kept the engine busy for who knows how long.
        busy_until = max(busy_until, stream.tokens_s[-1] if stream.tokens_s else math.inf)
    return found


def _at(first: _First) -> float:
    return first.at_s


def _first(stream: Stream) -> float:
    return stream.tokens_s[0]
