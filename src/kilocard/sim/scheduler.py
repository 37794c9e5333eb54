"""What vLLM's V1 scheduler decides in one step, and for whom.

As in vLLM 0.32, a step first gives tokens to the running requests in order (one each when decoding, a chunk when still
prefilling), preempting from the tail when KV blocks run out; then, if nobody was preempted, admits waiting requests
in order, while sequence slots, token budget and KV blocks last.
"""

from __future__ import annotations

from collections.abc import Sequence as Ids
from typing import Unpack

from kilocard.core.errors import EngineError
from kilocard.perf.profile import Profile
from kilocard.sim.kv import BlockPool
from kilocard.sim.limits import Limits, check
from kilocard.sim.prefix_pool import PrefixPool, block_keys
from kilocard.sim.sequence import Sequence
from kilocard.sim.step import SECOND, Counters, StepResult, StepTimes
from kilocard.sim.waiting import urgency, waiting_queue


class Scheduler:
    def __init__(self, profile: Profile, **limits: Unpack[Limits]) -> None:
        """Raises EngineError for limits that no engine could have."""
        check(limits, profile)
        self.profile = profile
        self.max_num_seqs = limits.get("max_num_seqs") or profile.max_num_seqs
        self.token_budget = limits.get("max_num_batched_tokens") or profile.max_num_batched_tokens
        self.kv_tokens = limits.get("kv_tokens") or profile.kv_tokens
        self.long_prefill_token_threshold = limits.get("long_prefill_token_threshold", 0)
        self.prefix_cache = limits.get("prefix_cache", False)
        self.policy = limits.get("policy", "fcfs")
        blocks = self.kv_tokens // profile.block_size
        self._watermark = int(limits.get("watermark", 0.0) * blocks)
        #: vLLM keeps one block for itself (the null block)
        self.pool = (PrefixPool if self.prefix_cache else BlockPool)(blocks - 1, profile.block_size)
        self.counters = Counters()
        self._times = StepTimes(profile)
        self._sequences: dict[str, Sequence] = {}
        self._waiting = waiting_queue(self.policy)
        #: in the order of admission (the values mean nothing)
        self._running: dict[Sequence, None] = {}
        #: of the last step: who got a first and who a last token
        self._firsts: list[Sequence] = []
        self._leaving: list[Sequence] = []
        self._places = 0
        #: slots that became free too late for the next step
        self._late = 0

    # gauges

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def waiting(self) -> int:
        return len(self._waiting.line)

    @property
    def kv_usage(self) -> float:
        return self.pool.usage

    @property
    def idle(self) -> bool:
        """Nothing to do: step() would return None."""
        return not self._waiting.line and len(self._running) == len(self._leaving)

    @property
    def largest_request(self) -> int:
        """Prompt and output tokens of the largest request that can ever finish here."""
        # The last token is never written to the cache.
        return self.pool.total * self.pool.block_size + 1

    # requests

    def add(
        self,
        request_id: str,
        prompt_tokens: int,
        output_tokens: int,
        now: float,
        *,
        blocks: Ids[int] = (),
        block_tokens: int = 0,
        cached_tokens: int = 0,
        priority: int = 0,
    ) -> None:
        """Queue a request. EngineError if it could never run: it is refused now, not stuck later.

        `blocks` are ids of the prompt's prefix blocks of `block_tokens` tokens, as WorkloadRequest has them. Without
        prefix_cache, `cached_tokens` is what the caller knows of such a cache: whole blocks of it are not computed,
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
        block_size = self.pool.block_size
        cached = 0
        keys: tuple[int, ...] = ()
        if self.prefix_cache:
            if blocks:
                keys = block_keys(blocks, block_tokens, block_size, prompt_tokens)
        else:
            cached = min(cached_tokens, prompt_tokens - 1) // block_size * block_size
        self.counters.added += 1
        sequence = Sequence(request_id, prompt_tokens, output_tokens, cached, now, self.counters.added, priority, keys)
        self._sequences[request_id] = sequence
        self._enqueue(sequence)

    def _enqueue(self, sequence: Sequence) -> None:
        self._waiting.add(sequence)

    def abort(self, request_id: str) -> bool:
        """Drop a request and free its slot and blocks at once. False if it is not (or no longer) here."""
        sequence = self._sequences.get(request_id)
        if sequence is None or sequence.done:
            return False
        del self._sequences[request_id]
        if sequence.running:
            del self._running[sequence]
            sequence.running = False
            self.pool.release(sequence)
        else:
            self._waiting.remove(sequence)
        self.counters.aborted += 1
        return True

    # steps

    def settle(self) -> None:
        """The last step is over: what finished in it leaves. step() does this itself; the gauges stay true between."""
        if self._firsts:
            self._firsts.clear()
        if not self._leaving:
            return
        for sequence in self._leaving:
            sequence.running = False
            del self._running[sequence]
            del self._sequences[sequence.request_id]
            self.pool.release(sequence)
        self._leaving.clear()

    def step(self, now: float) -> StepResult | None:
        """Schedule one step that starts at `now`. None when there is nothing to do."""
        self.settle()
        if not self._running and not self._waiting.line:
            return None
        return self._step(now)

    def _step(self, now: float) -> StepResult:
        batch, preempted = self._schedule_running()
        admitted: list[str] = []
        if not preempted and self._waiting.line:
            budget = self.token_budget
            for _, new in batch:
                budget -= new
            batch += self._admit(budget, now, admitted)
        if not batch and not preempted:
            raise AssertionError("the engine has requests and can run none of them")
        prefill_tokens = decode_seqs = kv_read = 0
        attended = 0.0
        for sequence, new in batch:
            kv_read += sequence.computed
            if sequence.emitted and new == 1:
                decode_seqs += 1
            else:
                prefill_tokens += new
                attended += new * (sequence.computed - new / 2)
        emitted: list[tuple[str, int]] = []
        finished: list[str] = []
        for sequence, _ in batch:
            if sequence.computed == sequence.prompt + sequence.emitted:  # else in mid-prefill
                self._emit(sequence)
                emitted.append((sequence.request_id, 1))
                if sequence.done:
                    finished.append(sequence.request_id)
        self.counters.steps += 1
        # By priority, the first in order may be the one to be thrown out, and nothing is left to run: vLLM schedules
        # anew at once.
        duration = 0
        if batch:
            duration = self._times.of(prefill_tokens, decode_seqs, attended) + self._times.kv_ps * kv_read
        return StepResult(
            duration / SECOND, emitted, finished, admitted, preempted, prefill_tokens, decode_seqs, duration
        )

    def _schedule_running(self) -> tuple[list[tuple[Sequence, int]], list[str]]:
        """((sequence, new tokens) of the batch, preempted ids)."""
        order = list(self._running)
        block_size = self.pool.block_size
        budget = self.token_budget
        most = self._most_of_one_prompt()
        index = 0
        preempted: list[str] = []
        batch: list[tuple[Sequence, int]] = []
        while index < len(order) and budget > 0:
            sequence = order[index]
            new = min(sequence.prompt + sequence.emitted - sequence.computed, most, budget)
            need = -(-(sequence.computed + new) // block_size) - sequence.blocks
            while need > 0 and not self.pool.take(need):
                victim = self._victim()
                place = order.index(victim)
                del order[place]
                if place < index:
                    index -= 1
                    budget += batch.pop(place)[1]
                self._preempt(victim)
                preempted.append(victim.request_id)
                if victim is sequence:
                    return batch, preempted
            sequence.blocks += max(0, need)
            sequence.computed += new
            self.pool.fill(sequence)
            budget -= new
            batch.append((sequence, new))
            index += 1
        return batch, preempted

    def _victim(self) -> Sequence:
        if self.policy == "priority":
            return max(self._running, key=urgency)
        return next(reversed(self._running))

    def _preempt(self, victim: Sequence) -> None:
        del self._running[victim]
        victim.running = False
        self.pool.release(victim)
        victim.computed = 0
        victim.preempted += 1
        victim.unreported += 1
        self._waiting.put_back(victim)
        self.counters.preempted += 1

    def _most_of_one_prompt(self) -> int:
        """Tokens that one request gets in a step at most."""
        threshold = self.long_prefill_token_threshold
        if threshold and len(self._running) + len(self._waiting.line) > 1:
            return threshold
        return self.token_budget

    def _admit(self, budget: int, now: float, admitted: list[str]) -> list[tuple[Sequence, int]]:
        """(sequence, new tokens) of those that come in. `admitted` gets the ids of those that never ran before."""
        waiting, running, pool = self._waiting, self._running, self.pool
        block_size = pool.block_size
        most = self._most_of_one_prompt()
        batch: list[tuple[Sequence, int]] = []
        # What was scheduled before the last step was over knows neither who came in it nor what it set free.
        ahead = True
        while waiting.line and budget > 0:
            sequence = waiting.head()
            match = pool.match(sequence)
            total = sequence.prompt + sequence.emitted
            # The whole prompt must fit, not the first chunk alone (vLLM's scheduler_reserve_full_isl): else two long
            # prompts let each other in and then preempt each other.
            whole = -(-total // block_size) - match.blocks
            if (
                len(running) >= self.max_num_seqs - self._late
                or (ahead and sequence.ready > self.counters.steps)
                or whole + match.idle + (self._watermark if running else 0) > pool.free - pool.reserved
            ):
                if ahead and budget == self.token_budget:
                    # Nothing was scheduled, so it is done again now that the last step is over.
                    ahead = False
                    self._late = pool.reserved = 0
                    continue
                break
            waiting.pop()
            if self.prefix_cache:
                pool.adopt(sequence, match)
                sequence.cached = match.blocks * block_size
            new = min(total - sequence.cached, most, budget)
            sequence.computed = sequence.cached + new
            blocks = -(-sequence.computed // block_size)
            if not pool.take(blocks - sequence.blocks):
                raise AssertionError("less room for a chunk than for its whole prompt")
            sequence.blocks = blocks
            pool.fill(sequence)
            running[sequence] = None
            sequence.running = True
            self._places += 1
            sequence.place = self._places
            if sequence.admitted_at is None:
                sequence.admitted_at = now
                admitted.append(sequence.request_id)
                self.counters.prefix_queries += sequence.prompt
                self.counters.prefix_hits += sequence.cached
            budget -= new
            batch.append((sequence, new))
        return batch

    def _emit(self, sequence: Sequence) -> None:
        """Its next token comes out of this step."""
        counters = self.counters
        if not sequence.emitted:
            counters.prompt_tokens += sequence.prompt
            self._firsts.append(sequence)
        if sequence.unreported:
            counters.preemptions_reported += sequence.unreported
            sequence.unreported = 0
        sequence.emitted += 1
        counters.generation_tokens += 1
        if sequence.emitted == sequence.output:
            sequence.done = True
            self._leaving.append(sequence)
            counters.finished += 1
