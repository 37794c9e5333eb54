"""The queue of requests that wait for a slot, in vLLM's two orders."""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterator
from typing import Literal

from kilocard.core.errors import EngineError
from kilocard.sim.sequence import Sequence

#: fcfs: first come, first served, preempted ones first of all; priority: lower values first, then by arrival
Policy = Literal["fcfs", "priority"]


def urgency(sequence: Sequence) -> tuple[int, int]:
    """Lower goes first."""
    return sequence.priority, sequence.order


class FirstCome:
    __slots__ = ("line",)

    def __init__(self) -> None:
        #: those that wait. Asked each step whether somebody does, so it is looked at without a call
        self.line: deque[Sequence] = deque()

    def __len__(self) -> int:
        return len(self.line)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self.line)

    def add(self, sequence: Sequence) -> None:
        self.line.append(sequence)

    def put_back(self, sequence: Sequence) -> None:
        """A preempted one."""
        self.line.appendleft(sequence)

    def head(self) -> Sequence:
        return self.line[0]

    def pop(self) -> Sequence:
        return self.line.popleft()

    def remove(self, sequence: Sequence) -> None:
        self.line.remove(sequence)


class ByPriority:
    __slots__ = ("line",)

    def __init__(self) -> None:
        #: the first to go is the last
        self.line: list[Sequence] = []

    def __len__(self) -> int:
        return len(self.line)

    def __iter__(self) -> Iterator[Sequence]:
        return reversed(self.line)

    def add(self, sequence: Sequence) -> None:
        insort(self.line, sequence, key=lambda each: (-each.priority, -each.order))

    def put_back(self, sequence: Sequence) -> None:
        self.add(sequence)

    def head(self) -> Sequence:
        return self.line[-1]

    def pop(self) -> Sequence:
        return self.line.pop()

    def remove(self, sequence: Sequence) -> None:
        self.line.remove(sequence)


def waiting_queue(policy: Policy) -> FirstCome | ByPriority:
    if policy == "fcfs":
        return FirstCome()
    if policy == "priority":
        return ByPriority()
    raise EngineError(f"scheduling policy {policy!r} is neither fcfs nor priority")
