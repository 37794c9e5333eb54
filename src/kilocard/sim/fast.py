"""The engine model that jumps: same events, same times, same counters as Engine, without a turn per step or token.

Sequences that decode all get one token a step. So they are kept as a group: how many, the sum of their contexts, how
many need a new KV block at each step (a context crosses a block's edge every block_size steps), and a heap of the
steps at which they end. While nobody prefills and nobody can be admitted, nothing changes until the next of them ends
or memory runs out, and k steps are one sum: with c for the batch and r for each KV token read,
k·c + r·(k·contexts + sequences·k(k−1)/2), in whole picoseconds and thus exact.

A step with a prompt in it is done one by one, but touches only the sequences that prefill. Where the reference's order
of the running requests matters (memory or the token budget doesn't reach round), the group is dissolved and the
reference does the step.
"""

from __future__ import annotations

import math
from heapq import heappop, heappush
from operator import attrgetter
from typing import Any

from kilocard.perf.profile import Profile
from kilocard.sim.engine import Engine
from kilocard.sim.sequence import Sequence
from kilocard.sim.step import SECOND, StepResult, Stretch

_PLACE = attrgetter("place")


class FastEngine(Engine):
    """Takes Engine's arguments."""

    def __init__(self, profile: Profile, **limits: Any) -> None:
        super().__init__(profile, **limits)
        #: decoding sequences are in the group, and their own counts lag behind
        self._grouped = False
        #: steps of the group
        self._clock = 0
        self._decoding = 0
        #: prompt and output tokens of all of the group: the KV tokens that its next step reads
        self._contexts = 0
        #: how many of the group need a new block in a step at clock ≡ place
        self._edges = [0] * self.pool.block_size
        #: (clock at the last token, place, sequence); entries of those that left stay until they come up
        self._ends: list[tuple[int, int, Sequence]] = []
        self._prefilling: list[Sequence] = []
        #: the head of the waiting can't come in before something leaves
        self._blocked = False
        #: next_at() was asked, so the step that begins now begins without those who come later
        self._begun = False

    # requests

    def _enqueue(self, sequence: Sequence) -> None:
        if self._begun:
            self._commit(self._now_s)
        super()._enqueue(sequence)
        if self.policy != "fcfs" or len(self._waiting) == 1:
            self._blocked = False

    def abort(self, request_id: str) -> bool:
        if self._begun:
            self._commit(self._now_s)
        sequence = self._sequences.get(request_id)
        if sequence is not None and not sequence.done:
            if sequence.finish >= 0:
                self._leave(sequence)
            elif self._grouped and sequence.running:
                self._prefilling.remove(sequence)
            self._blocked = False
        return super().abort(request_id)

    def settle(self) -> None:
        if self._leaving:
            self._blocked = False
        super().settle()

    def step(self, now: float) -> StepResult | None:
        self._dissolve()
        return super().step(now)

    # its own clock

    def next_at(self) -> float:
        self._clocked = True
        if self._busy:
            if self._firsts or self._leaving:
                return self._now_s
        elif not self._running and not self._waiting:
            return math.inf
        steps = self._steps_alike()
        if steps:
            if not self._busy:
                self._begun = True
            return (self._now + self._duration(steps)) / SECOND
        if not self._busy:
            self._commit(self._now_s)
        return self._now_s

    def _commit(self, until: float) -> None:
        steps = self._steps_alike()
        if steps:
            self._jump(steps, until)
        elif not self._grouped or not self._mixed_step():
            self._dissolve()
            super()._commit(until)
        self._begun = False
        self._busy = True

    def _steps_alike(self) -> int:
        """Steps from now in which the group decodes and nothing else happens but that one ends with the last."""
        if not self._grouped and not self._group():
            return 0
        sequences = self._decoding
        if not sequences or self._prefilling or (self._waiting and not self._blocked):
            return 0
        ends = self._ends
        while ends[0][2].finish != ends[0][0] or ends[0][2].place != ends[0][1]:
            heappop(ends)
        steps = ends[0][0] - self._clock
        free = self.pool.free
        block_size = self.pool.block_size
        if free >= (steps // block_size + 1) * sequences:
            return steps
        # As many as memory is enough for.
        rounds = free // sequences
        free -= rounds * sequences
        possible = rounds * block_size
        while possible < steps:
            free -= self._edges[(self._clock + possible) % block_size]
            if free < 0:
                return possible
            possible += 1
        return steps

    def _duration(self, steps: int) -> int:
        """Picoseconds of the group's next steps."""
        sequences = self._decoding
        read = steps * self._contexts + sequences * (steps * (steps - 1) // 2)
        return steps * self._times.decode(sequences) + self._times.kv_ps * read

    def _jump(self, steps: int, until: float) -> None:
        """Those of the steps that begin before `until`; one at least if it has begun."""
        now = self._now
        if steps > 1 and (now + self._duration(steps - 1)) / SECOND >= until:
            steps = self._before(until)
            if self._begun and not steps:
                steps = 1
        if self.stretches is not None:
            sequences, kv = self._decoding, self._times.kv_ps
            first = self._duration(1)
            self.stretches.append(Stretch(now, steps, first, kv * sequences, sequences))
        taken = self._blocks_for(steps)
        now += self._duration(steps)
        if taken and not self.pool.take(taken):
            raise AssertionError("the jump went further than memory")
        self._pass(steps)
        self.counters.steps += steps
        self._set_now(now)

    def _before(self, until: float) -> int:
        """How many of the group's next steps begin before `until`."""
        now = self._now
        half = self._times.kv_ps * self._decoding / 2
        rest = until * SECOND - now
        linear = self._times.decode(self._decoding) + self._times.kv_ps * self._contexts - half
        # half·i² + linear·i = rest; the float's answer is then set right
        steps = max(0, int(2 * rest / (linear + math.sqrt(linear * linear + 4 * half * max(0.0, rest)))))
        while (now + self._duration(steps)) / SECOND < until:
            steps += 1
        while steps and (now + self._duration(steps - 1)) / SECOND >= until:
            steps -= 1
        return steps

    def _blocks_for(self, steps: int) -> int:
        block_size = self.pool.block_size
        if steps == 1:
            return self._edges[self._clock % block_size]
        rounds, rest = divmod(steps, block_size)
        blocks = rounds * self._decoding
        begin = self._clock % block_size
        end = begin + rest
        if end <= block_size:
            return blocks + sum(self._edges[begin:end])
        return blocks + sum(self._edges[begin:]) + sum(self._edges[: end - block_size])

    def _pass(self, steps: int) -> None:
        """The group has had so many steps; those whose last it was leave it."""
        sequences = self._decoding
        self._clock += steps
        self._contexts += sequences * steps
        self.counters.generation_tokens += sequences * steps
        ends, clock = self._ends, self._clock
        while ends and ends[0][0] <= clock:
            finish, place, sequence = heappop(ends)
            if sequence.finish == finish and sequence.place == place:
                self._leave(sequence)
                sequence.done = True
                self._leaving.append(sequence)
                self.counters.finished += 1

    # the group

    def _group(self) -> bool:
        """Form it, if the next step can be done with it."""
        if len(self._running) > min(self.pool.free, self.token_budget):
            return False
        for sequence in self._running:
            if sequence.done:
                continue
            if sequence.emitted and sequence.computed == sequence.prompt + sequence.emitted - 1:
                self._join(sequence)
            else:
                self._prefilling.append(sequence)
        self._grouped = True
        return True

    def _dissolve(self) -> None:
        if self._grouped:
            for sequence in self._running:
                if sequence.finish >= 0:
                    self._leave(sequence)
            self._ends.clear()
            self._prefilling.clear()
            self._grouped = False
        self._blocked = False

    def _join(self, sequence: Sequence) -> None:
        offset = sequence.offset = self._clock - sequence.emitted
        sequence.finish = offset + sequence.output
        heappush(self._ends, (sequence.finish, sequence.place, sequence))
        self._edges[(offset - sequence.prompt + 1) % self.pool.block_size] += 1
        self._decoding += 1
        self._contexts += sequence.prompt + sequence.emitted

    def _leave(self, sequence: Sequence) -> None:
        """Out of the group; its own counts are true again."""
        block_size = self.pool.block_size
        sequence.emitted = self._clock - sequence.offset
        sequence.computed = sequence.prompt + sequence.emitted - 1
        sequence.blocks = -(-sequence.computed // block_size)
        sequence.finish = -1
        self._edges[(sequence.offset - sequence.prompt + 1) % block_size] -= 1
        self._decoding -= 1
        self._contexts -= sequence.prompt + sequence.emitted

    # a step with prompts

    def _mixed_step(self) -> bool:
        """False, and nothing done, where the order of the running requests matters."""
        decoding = self._decoding
        budget = self.token_budget - decoding
        if budget < 0:
            return False
        pool, block_size = self.pool, self.pool.block_size
        need = self._edges[self._clock % block_size]
        batch: list[tuple[Sequence, int]] = []
        prefilling = self._prefilling
        if prefilling:
            most = self._most_of_one_prompt()
            for sequence in prefilling:
                new = min(sequence.prompt + sequence.emitted - sequence.computed, most)
                if new > budget:
                    if len(prefilling) > 1 or sequence is not next(reversed(self._running)):
                        return False
                    new = budget
                if new:
                    need += -(-(sequence.computed + new) // block_size) - sequence.blocks
                    budget -= new
                    batch.append((sequence, new))
        if need and not pool.take(need):
            return False
        for sequence, new in batch:
            sequence.computed += new
            sequence.blocks = -(-sequence.computed // block_size)
            pool.fill(sequence)
        if self._waiting and not self._blocked and budget:
            admitted = self._admit(budget, self._now_s, [])
            for _, new in admitted:
                budget -= new
            self._blocked = bool(self._waiting) and budget > 0
            if admitted:
                batch += admitted
                prefilling += [sequence for sequence, _ in admitted]
        self._run_step(batch, decoding)
        return True

    def _run_step(self, batch: list[tuple[Sequence, int]], decoding: int) -> None:
        prefill_tokens = 0
        kv_read = self._contexts
        attended = 0.0
        tokens = decode_seqs = decoding
        self._pass(1)
        leaving = len(self._leaving)
        for sequence, new in batch:
            computed = sequence.computed
            kv_read += computed
            if sequence.emitted and new == 1:
                decode_seqs += 1
            else:
                prefill_tokens += new
                attended += new * (computed - new / 2)
            if computed == sequence.prompt + sequence.emitted:
                tokens += 1
                self._prefilling.remove(sequence)
                self._emit(sequence)
                if not sequence.done:
                    self._join(sequence)
        if leaving and len(self._leaving) > leaving:
            self._leaving.sort(key=_PLACE)
        self.counters.steps += 1
        if prefill_tokens:
            duration = self._times.of(prefill_tokens, decode_seqs, attended)
        else:
            duration = self._times.decode(decode_seqs)
        duration += self._times.kv_ps * kv_read
        if self.stretches is not None:
            self.stretches.append(Stretch(self._now, 1, duration, 0, tokens))
        self._set_now(self._now + duration)
