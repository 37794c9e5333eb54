"""vLLM's V1 scheduler as a model: continuous batching, chunked prefill, paged KV, preemption by recompute.

An outside clock drives it, so the same engine runs in the simulator (virtual time) and in the emulator (wall time):

    engine.add("r1", prompt_tokens=100, output_tokens=50, now=t)
    while (step := engine.step(t)) is not None:
        t += step.duration_s            # the step's tokens come out now

As in vLLM, a step first gives tokens to the running requests in order (one each when decoding, a chunk when still
prefilling), preempting from the tail when KV blocks run out; then, if nobody was preempted, admits waiting requests
first come, first served, while sequence slots, token budget and KV blocks last.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from kilocard.core.errors import EngineError
from kilocard.perf.profile import Profile
from kilocard.sim.kv import BlockPool
from kilocard.sim.sequence import Sequence


class StepResult(NamedTuple):
    """What one step does. Its tokens come out `duration_s` after its start."""

    duration_s: float
    #: (request id, tokens that come out), in batch order
    emitted: list[tuple[str, int]]
    #: requests whose last token is among the emitted
    finished: list[str]
    #: requests that got their first slot
    admitted: list[str]
    preempted: list[str]
    prefill_tokens: int
    decode_seqs: int


@dataclass(slots=True)
class Counters:
    """Since the engine's start, in requests or tokens."""

    steps: int = 0
    added: int = 0
    finished: int = 0
    aborted: int = 0
    #: each preemption when it happens
    preempted: int = 0
    #: as vLLM exports it: a preemption is counted with the next output of its victim, so it lags
    preemptions_reported: int = 0
    prompt_tokens: int = 0
    generation_tokens: int = 0
    prefix_queries: int = 0
    prefix_hits: int = 0


class Engine:
    def __init__(
        self,
        profile: Profile,
        *,
        max_num_seqs: int | None = None,
        kv_tokens: int | None = None,
        max_num_batched_tokens: int | None = None,
    ) -> None:
        self.profile = profile
        self.max_num_seqs = max_num_seqs or profile.max_num_seqs
        self.token_budget = max_num_batched_tokens or profile.max_num_batched_tokens
        self.kv_tokens = kv_tokens or profile.kv_tokens
        if self.max_num_seqs < 1 or self.token_budget < 1:
            raise EngineError("max_num_seqs and max_num_batched_tokens must be 1 or more")
        blocks = self.kv_tokens // profile.block_size
        if blocks < 2:
            raise EngineError(f"{self.kv_tokens} KV tokens are less than two blocks of {profile.block_size}")
        #: vLLM keeps one block for itself (the null block)
        self.pool = BlockPool(blocks - 1, profile.block_size)
        self.counters = Counters()
        self._sequences: dict[str, Sequence] = {}
        self._waiting: deque[Sequence] = deque()
        self._running: list[Sequence] = []
        self._leaving: list[Sequence] = []

    # gauges

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def kv_usage(self) -> float:
        return self.pool.usage

    @property
    def idle(self) -> bool:
        """Nothing to do: step() would return None."""
        return not self._waiting and len(self._running) == len(self._leaving)

    @property
    def largest_request(self) -> int:
        """Prompt and output tokens of the largest request that can ever finish here."""
        # The last token is never written to the cache.
        return self.pool.total * self.pool.block_size + 1

    # requests

    def add(
        self, request_id: str, prompt_tokens: int, output_tokens: int, now: float, *, cached_tokens: int = 0
    ) -> None:
        """Queue a request. EngineError if it could never run: it is refused now, not stuck later.

        `cached_tokens` is what the caller's prefix cache knows of the prompt; whole blocks of it are not computed,
        and never the whole prompt, since the last position must be computed to get a token.
        """
        if request_id in self._sequences:
            raise EngineError(f"request {request_id} is in the engine already")
        if prompt_tokens < 1 or output_tokens < 1:
            raise EngineError(f"request {request_id}: prompt and output need at least one token each")
        if prompt_tokens + output_tokens > self.largest_request:
            raise EngineError(
                f"request {request_id} needs {prompt_tokens + output_tokens} KV tokens, the engine has "
                f"{self.largest_request}: raise kv_tokens or lower max_model_len"
            )
        block = self.pool.block_size
        cached = min(cached_tokens, prompt_tokens - 1) // block * block
        sequence = Sequence(request_id, prompt_tokens, output_tokens, cached, now)
        self._sequences[request_id] = sequence
        self._waiting.append(sequence)
        self.counters.added += 1

    def abort(self, request_id: str) -> bool:
        """Drop a request and free its slot and blocks at once. False if it is not (or no longer) here."""
        sequence = self._sequences.get(request_id)
        if sequence is None or sequence.done:
            return False
        del self._sequences[request_id]
        if sequence.running:
            self._running.remove(sequence)
            self._release(sequence)
        else:
            self._waiting.remove(sequence)
        self.counters.aborted += 1
        return True

    # steps

    def settle(self) -> None:
        """The last step is over: what finished in it leaves. step() does this itself; the gauges stay true between."""
        if not self._leaving:
            return
        for sequence in self._leaving:
            self._release(sequence)
            del self._sequences[sequence.request_id]
        self._leaving.clear()
        self._running = [sequence for sequence in self._running if sequence.running]

    def step(self, now: float) -> StepResult | None:
        """Schedule one step that starts at `now`. None when there is nothing to do."""
        self.settle()
        if not self._running and not self._waiting:
            return None
        batch, prefill_tokens, decode_seqs, kv_read, attended, preempted = self._schedule_running()
        admitted: list[str] = []
        if not preempted and self._waiting:
            prefill_tokens, kv_read, attended = self._admit(
                batch, prefill_tokens, decode_seqs, kv_read, attended, admitted, now
            )
        if not batch:
            raise AssertionError("the engine has requests and can run none of them")
        emitted, finished = self._emit(batch)
        self.counters.steps += 1
        duration = self.profile.step_s(prefill_tokens, decode_seqs, kv_read, attended)
        return StepResult(duration, emitted, finished, admitted, preempted, prefill_tokens, decode_seqs)

    def _schedule_running(self) -> tuple[list[Sequence], int, int, int, float, list[str]]:
        """(batch, prefill tokens, decoding sequences, KV tokens read, pairs of prefill attention, preempted ids)."""
        running, pool = self._running, self.pool
        block_size = pool.block_size
        budget = self.token_budget
        prefill_tokens = decode_seqs = kv_read = index = 0
        attended = 0.0
        preempted: list[str] = []
        batch: list[Sequence] = []
        while index < len(running) and budget > 0:
            sequence = running[index]
            computed = sequence.computed
            new = sequence.prompt + sequence.emitted - computed
            if new > budget:
                new = budget
            computed += new
            if computed > sequence.blocks * block_size and not self._grow(sequence, computed, preempted):
                break  # it was the last one running, and is preempted itself
            if sequence.emitted and new == 1:
                decode_seqs += 1
            else:
                prefill_tokens += new
                attended += new * (computed - new / 2)
            sequence.computed = computed
            kv_read += computed
            budget -= new
            batch.append(sequence)
            index += 1
        return batch, prefill_tokens, decode_seqs, kv_read, attended, preempted

    def _grow(self, sequence: Sequence, tokens: int, preempted: list[str]) -> bool:
        """Get the blocks for `tokens`, from the tail of the running requests if need be."""
        need = self.pool.blocks_for(tokens) - sequence.blocks
        while not self.pool.take(need):
            victim = self._running.pop()
            self._release(victim)
            victim.computed = 0
            victim.preempted += 1
            victim.unreported += 1
            self._waiting.appendleft(victim)
            self.counters.preempted += 1
            preempted.append(victim.request_id)
            if victim is sequence:
                return False
        sequence.blocks += need
        return True

    def _admit(
        self,
        batch: list[Sequence],
        prefill_tokens: int,
        decode_seqs: int,
        kv_read: int,
        attended: float,
        admitted: list[str],
        now: float,
    ) -> tuple[int, int, float]:
        budget = self.token_budget - prefill_tokens - decode_seqs
        waiting, running, pool = self._waiting, self._running, self.pool
        while waiting and budget > 0 and len(running) < self.max_num_seqs:
            sequence = waiting[0]
            total = sequence.prompt + sequence.emitted
            new = min(total - sequence.cached, budget)
            need = pool.blocks_for(sequence.cached + new)
            # The whole prompt must fit, not the first chunk alone (vLLM's scheduler_reserve_full_isl): else two long
            # prompts let each other in and then preempt each other.
            if pool.blocks_for(total) > pool.free or not pool.take(need):
                break
            waiting.popleft()
            running.append(sequence)
            sequence.running = True
            sequence.blocks = need
            sequence.computed = sequence.cached + new
            if sequence.admitted_at is None:
                sequence.admitted_at = now
                admitted.append(sequence.request_id)
                self.counters.prefix_queries += sequence.prompt
                self.counters.prefix_hits += sequence.cached
            prefill_tokens += new
            kv_read += sequence.computed
            attended += new * (sequence.computed - new / 2)
            budget -= new
            batch.append(sequence)
        return prefill_tokens, kv_read, attended

    def _emit(self, batch: list[Sequence]) -> tuple[list[tuple[str, int]], list[str]]:
        counters = self.counters
        emitted: list[tuple[str, int]] = []
        finished: list[str] = []
        for sequence in batch:
            if sequence.computed < sequence.prompt + sequence.emitted:
                continue  # in mid-prefill
            if not sequence.emitted:
                counters.prompt_tokens += sequence.prompt
            if sequence.unreported:
                counters.preemptions_reported += sequence.unreported
                sequence.unreported = 0
            sequence.emitted += 1
            emitted.append((sequence.request_id, 1))
            if sequence.emitted == sequence.output:
                sequence.done = True
                self._leaving.append(sequence)
                finished.append(sequence.request_id)
        counters.generation_tokens += len(emitted)
        counters.finished += len(finished)
        return emitted, finished

    def _release(self, sequence: Sequence) -> None:
        self.pool.give(sequence.blocks)
        sequence.blocks = 0
        sequence.running = False
