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
    __slots__ = ("_queue",)

    def __init__(self) -> None:
        self._queue: deque[Sequence] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._queue)

    def add(self, sequence: Sequence) -> None:
        self._queue.append(sequence)

    def put_back(self, sequence: Sequence) -> None:
        """A preempted one."""
        self._queue.appendleft(sequence)

    def head(self) -> Sequence:
        return self._queue[0]

    def pop(self) -> Sequence:
        return self._queue.popleft()

    def remove(self, sequence: Sequence) -> None:
        self._queue.remove(sequence)


class ByPriority:
    __slots__ = ("_queue",)

    def __init__(self) -> None:
        #: the first to go is the last
        self._queue: list[Sequence] = []

    def __len__(self) -> int:
        return len(self._queue)

    def __iter__(self) -> Iterator[Sequence]:
        return reversed(self._queue)

    def add(self, sequence: Sequence) -> None:
        insort(self._queue, sequence, key=lambda each: (-each.priority, -each.order))

    def put_back(self, sequence: Sequence) -> None:
        self.add(sequence)

    def head(self) -> Sequence:
        return self._queue[-1]

    def pop(self) -> Sequence:
        return self._queue.pop()

    def remove(self, sequence: Sequence) -> None:
        self._queue.remove(sequence)


def waiting_queue(policy: Policy) -> FirstCome | ByPriority:
    if policy == "fcfs":
        return FirstCome()
    if policy == "priority":
        return ByPriority()
    raise EngineError(f"scheduling policy {policy!r} is neither fcfs nor priority")
