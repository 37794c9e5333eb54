"""Sequences that decode together: what k steps of all of them take, without touching one of them.

They all get one token a step, so their own counts follow from the group's clock. The group keeps how many they are,
the sum of their contexts, how many need a new KV block at each step (a context crosses a block's edge every
block_size steps), and a heap of the steps at which they end.
"""

from __future__ import annotations

import math
from heapq import heappop, heappush

from kilocard.sim.sequence import Sequence
from kilocard.sim.step import SECOND, StepTimes


class Group:
    __slots__ = ("_block_size", "_edges", "_ends", "_times", "clock", "contexts", "cost", "sequences")

    def __init__(self, times: StepTimes, block_size: int) -> None:
        self._times = times
        self._block_size = block_size
        #: steps so far
        self.clock = 0
        self.sequences = 0
        #: prompt and output tokens of all: the KV tokens that the next step reads
        self.contexts = 0
        #: picoseconds of a step without what its KV tokens take
        self.cost = 0
        #: how many need a new block in a step at clock ≡ place
        self._edges = [0] * block_size
        #: (clock at the last token, place, sequence); entries of those that left stay until they come up
        self._ends: list[tuple[int, int, Sequence]] = []

    def join(self, sequence: Sequence) -> None:
        """It has its first token, and the KV of all tokens but the last."""
        offset = sequence.offset = self.clock - sequence.emitted
        sequence.finish = offset + sequence.output
        heappush(self._ends, (sequence.finish, sequence.place, sequence))
        self._edges[(offset - sequence.prompt + 1) % self._block_size] += 1
        self.sequences += 1
        self.cost = self._times.decode(self.sequences)
        self.contexts += sequence.prompt + sequence.emitted

    def leave(self, sequence: Sequence) -> None:
        """Its own counts are true again."""
        block_size = self._block_size
        sequence.emitted = self.clock - sequence.offset
        sequence.computed = sequence.prompt + sequence.emitted - 1
        sequence.blocks = -(-sequence.computed // block_size)
        sequence.finish = -1
        self._edges[(sequence.offset - sequence.prompt + 1) % block_size] -= 1
        self.sequences -= 1
        self.cost = self._times.decode(self.sequences)
        self.contexts -= sequence.prompt + sequence.emitted

    def forget_ends(self) -> None:
        """Everybody has left."""
        self._ends.clear()

    def step(self, steps: int) -> list[Sequence]:
        """Everybody gets so many tokens; those whose last it was leave. Not beyond `steps_alike`."""
        self.clock += steps
        self.contexts += self.sequences * steps
        ends, clock = self._ends, self.clock
        over: list[Sequence] = []
        while ends and ends[0][0] <= clock:
            finish, place, sequence = heappop(ends)
            if sequence.finish == finish and sequence.place == place:
                self.leave(sequence)
                over.append(sequence)
        return over

    def steps_alike(self, free_blocks: int) -> int:
        """Steps until the next of them ends, or as many of these as memory is enough for."""
        ends = self._ends
        while ends[0][2].finish != ends[0][0] or ends[0][2].place != ends[0][1]:
            heappop(ends)
        steps = ends[0][0] - self.clock
        if free_blocks >= (steps // self._block_size + 1) * self.sequences:
            return steps
        rounds, free_blocks = divmod(free_blocks, self.sequences)
        possible = rounds * self._block_size
        while possible < steps:
            free_blocks -= self._edges[(self.clock + possible) % self._block_size]
            if free_blocks < 0:
                return possible
            possible += 1
        return steps

    def blocks_for(self, steps: int) -> int:
        """New KV blocks that the next steps take."""
        begin = self.clock % self._block_size
        if steps == 1:
            return self._edges[begin]
        rounds, rest = divmod(steps, self._block_size)
        end = begin + rest
        blocks = rounds * self.sequences + sum(self._edges[begin:end])
        if end > self._block_size:
            blocks += sum(self._edges[: end - self._block_size])
        return blocks

    def duration(self, steps: int) -> int:
        """Picoseconds of the next steps."""
        read = steps * self.contexts + self.sequences * (steps * (steps - 1) // 2)
        return steps * self.cost + self._times.kv_ps * read

    def steps_before(self, now: int, until: float) -> tuple[int, int]:
        """How many of the steps from `now` (picoseconds) begin before `until` (seconds), and the end of the last."""
        half = self._times.kv_ps * self.sequences / 2
        linear = self.cost + self._times.kv_ps * self.contexts - half
        rest = max(0.0, until * SECOND - now)
        # half·i² + linear·i = rest; the float's answer is then set right
        steps = int(2 * rest / (linear + math.sqrt(linear * linear + 4 * half * rest)))
        end = now + self.duration(steps)
        while end / SECOND < until:
            steps += 1
            end = now + self.duration(steps)
        while steps and (begin := now + self.duration(steps - 1)) / SECOND >= until:
            steps -= 1
            end = begin
        return steps, end
