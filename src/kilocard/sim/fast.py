"""The engine model that jumps: same events, same times, same counters as Engine, without a turn per step or token.

Sequences that decode are kept as a group (group.py). While nobody prefills and nobody can be admitted, nothing changes
until the next of them ends or memory runs out, and k steps are one sum: with c for the batch and r for each KV token
read, k·c + r·(k·contexts + sequences·k(k−1)/2), in whole picoseconds and thus exact.

A step with a prompt in it is done one by one, but touches only the sequences that prefill. Where the reference's order
of the running requests matters (memory or the token budget doesn't reach round), the group is dissolved and the
reference does the step.
"""

from __future__ import annotations

import math
from operator import attrgetter
from typing import Unpack

from kilocard.perf.profile import Profile
from kilocard.sim.engine import Engine
from kilocard.sim.group import Group
from kilocard.sim.limits import Limits
from kilocard.sim.sequence import Sequence
from kilocard.sim.step import SECOND, StepResult, Stretch

_PLACE = attrgetter("place")


class FastEngine(Engine):
    def __init__(self, profile: Profile, *, record: bool = False, **limits: Unpack[Limits]) -> None:
        super().__init__(profile, record=record, **limits)
        self._group = Group(self._times, self.pool.block_size)
        #: all running sequences are in the group or prefilling; else the group is empty
        self._grouped = False
        self._prefilling: list[Sequence] = []
        #: the head of the waiting can't come in before something leaves
        self._blocked = False
        #: next_at() was asked, so the step that begins now begins without those who come later
        self._begun = False
        #: what next_at() found: steps alike from now, and when the last of them ends; 0: not known
        self._ahead = self._ahead_end = 0

    # requests

    def _enqueue(self, sequence: Sequence) -> None:
        if self._begun:
            self._commit(self._now_s)
        self._ahead = 0
        super()._enqueue(sequence)
        if self.policy != "fcfs" or len(self._waiting.line) == 1:
            self._blocked = False

    def abort(self, request_id: str) -> bool:
        if self._begun:
            self._commit(self._now_s)
        sequence = self._sequences.get(request_id)
        if sequence is not None and not sequence.done:
            if sequence.finish >= 0:
                self._group.leave(sequence)
            elif self._grouped and sequence.running:
                self._prefilling.remove(sequence)
            self._blocked = False
            self._ahead = 0
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
        elif not self._running and not self._waiting.line:
            return math.inf
        steps = self._ahead
        if not steps and (steps := self._steps_alike()):
            self._ahead = steps
            self._ahead_end = self._now + self._group.duration(steps)
        if steps:
            if not self._busy:
                self._begun = True
            return self._ahead_end / SECOND
        if not self._busy:
            self._commit(self._now_s)
        return self._now_s

    def _commit(self, until: float) -> None:
        steps = self._ahead
        if steps:
            self._jump(steps, self._ahead_end, until)
        elif steps := self._steps_alike():
            self._jump(steps, self._now + self._group.duration(steps), until)
        elif not self._grouped or not self._mixed_step():
            self._dissolve()
            super()._commit(until)
        self._begun = False
        self._ahead = 0
        self._begun_step()

    def _steps_alike(self) -> int:
        """Steps from now in which the group decodes and nothing else happens but that one ends with the last."""
        if not self._grouped and not self._form():
            return 0
        if not self._group.sequences or self._prefilling or (self._waiting.line and not self._blocked):
            return 0
        return self._group.steps_alike(self.pool.free - self.pool.reserved)

    def _jump(self, steps: int, end: int, until: float) -> None:
        """Those of the steps, which end at `end`, that begin before `until`; one at least if it has begun."""
        group, now = self._group, self._now
        if steps > 1 and end / SECOND > until and (now + group.duration(steps - 1)) / SECOND >= until:
            steps, end = group.steps_before(now, until)
            if self._begun and not steps:
                steps, end = 1, now + group.duration(1)
        sequences = group.sequences
        if self.stretches is not None:
            self.stretches.append(Stretch(now, steps, group.duration(1), self._times.kv_ps * sequences, sequences))
        if not self.pool.take(group.blocks_for(steps)):
            raise AssertionError("the jump went further than memory")
        self._set_now(end)
        self._group_steps(steps)
        self.counters.steps += steps

    def _group_steps(self, steps: int) -> None:
        self.counters.generation_tokens += self._group.sequences * steps
        for sequence in self._group.step(steps):
            sequence.done = True
            self._leaving.append(sequence)
            self.counters.finished += 1

    # the group

    def _form(self) -> bool:
        """False if the next step can't be done with it."""
        if len(self._running) > min(self.pool.free - self.pool.reserved, self.token_budget):
            return False
        for sequence in self._running:
            left = sequence.prompt + sequence.emitted - sequence.computed
            # One that was preempted and is not yet back where it was may have one token to go as well.
            if sequence.emitted and left == 1 and not sequence.unreported:
                self._group.join(sequence)
            else:
                self._prefilling.append(sequence)
        self._grouped = True
        return True

    def _dissolve(self) -> None:
        if self._grouped:
            for sequence in self._running:
                if sequence.finish >= 0:
                    self._group.leave(sequence)
            self._group.forget_ends()
            self._prefilling.clear()
            self._grouped = False
        self._blocked = False
        self._ahead = 0

    # a step with prompts

    def _mixed_step(self) -> bool:
        """False, and nothing done, where the order of the running requests matters."""
        pool, block_size = self.pool, self.pool.block_size
        budget = self.token_budget - self._group.sequences
        need = self._group.blocks_for(1)
        batch: list[tuple[Sequence, int]] = []
        if self._prefilling:
            most = self._most_of_one_prompt()
            for sequence in self._prefilling:
                new = min(sequence.prompt + sequence.emitted - sequence.computed, most)
                if new > budget:
                    if len(self._prefilling) > 1 or sequence is not next(reversed(self._running)):
                        return False
                    new = budget
                if new:
                    need += -(-(sequence.computed + new) // block_size) - sequence.blocks
                    budget -= new
                    batch.append((sequence, new))
        if not pool.take(need):
            return False
        for sequence, new in batch:
            sequence.computed += new
            sequence.blocks = -(-sequence.computed // block_size)
            pool.fill(sequence)
        if self._waiting.line and not self._blocked and budget:
            for sequence, new in self._admit(budget, self._now_s, []):
                budget -= new
                batch.append((sequence, new))
                self._prefilling.append(sequence)
            if self._waiting.line and budget > 0:
                self._blocked = not self._late and self._waiting.head().ready <= self.counters.steps
        self._run_step(batch)
        return True

    def _run_step(self, batch: list[tuple[Sequence, int]]) -> None:
        """The group decodes, and `batch` gets its new tokens."""
        prefill_tokens = 0
        tokens = decode_seqs = self._group.sequences
        kv_read = self._group.contexts
        attended = 0.0
        self._group_steps(1)
        leaving = len(self._leaving)
        for sequence, new in batch:
            computed = sequence.computed
            kv_read += computed
            if sequence.emitted and new == 1:
                decode_seqs += 1
            else:
                prefill_tokens += new
                attended += new * (computed - new / 2)
            if computed == sequence.prompt + sequence.emitted:  # else in mid-prefill
                tokens += 1
                self._prefilling.remove(sequence)
                self._emit(sequence)
                if not sequence.done:
                    self._group.join(sequence)
        if leaving and len(self._leaving) > leaving:
            self._leaving.sort(key=_PLACE)
        self.counters.steps += 1
        duration = self._times.of(prefill_tokens, decode_seqs, attended) + self._times.kv_ps * kv_read
        if self.stretches is not None:
            self.stretches.append(Stretch(self._now, 1, duration, 0, tokens))
        self._set_now(self._now + duration)
