"""How many requests each worker may have on a replica whose pool has `max_in_flight`. Pure.

The bound holds exactly, for all workers together and at every moment, without a question per request: each worker has
a share, and the shares together are never more than the bound. Shares follow demand (running + held), by max-min
fairness: nobody gets more than it can use while another wants for it; what is left over is slack for all alike.

A share is lowered first and given to another only when its worker has said that it obeys. What a worker may have at
most until then is its `cap`. News cross on the way, so each set of shares that is sent has a number, and a worker's
report says the last number that it had read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


def fair(bound: int, demands: Mapping[int, int], turn: int = 0) -> dict[int, int]:
    """Max-min fair shares of `bound` for demands by worker; they sum up to `bound`, slack included.

    What can't be split evenly goes round: with another `turn`, others of those who want as much get one more.
    """
    shares: dict[int, int] = {}
    left = bound
    workers = sorted(demands)
    line = sorted(workers, key=lambda worker: (demands[worker], (workers.index(worker) + turn) % len(workers)))
    for place, worker in enumerate(line):
        shares[worker] = min(demands[worker], -(-left // (len(line) - place)))
        left -= shares[worker]
    for place, worker in enumerate(workers):
        part = -(-left // (len(workers) - place))
        shares[worker] += part
        left -= part
    return shares


@dataclass(slots=True)
class _Part:
    """One worker's side of one replica."""

    #: running and held there
    demand: int = 0
    #: what the worker said that it may have at most
    said: int = 0
    #: what it may have at most as far as we know
    cap: int = 0
    #: the share that was sent last, and the number it was sent with
    sent: int = 0
    number: int = 0


class Shares:
    """The split of one replica's bound among workers."""

    def __init__(self, bound: int) -> None:
        self.bound = bound
        self._parts: dict[int, _Part] = {}

    def join(self, worker: int) -> None:
        self._parts.setdefault(worker, _Part())

    def leave(self, worker: int) -> None:
        """It has died, and what it had with it."""
        self._parts.pop(worker, None)

    def report(self, worker: int, demand: int, cap: int, read: int) -> None:
        """A worker's own words: what it wants, what it may have at most, and the last number that it has read."""
        part = self._parts.get(worker)
        if part is not None:
            part.demand, part.said = demand, cap
            self._believe(part, read)

    def read(self, worker: int, number: int) -> None:
        """It has read up to this number, and had nothing new to say."""
        part = self._parts.get(worker)
        if part is not None:
            self._believe(part, number)

    def _believe(self, part: _Part, read: int) -> None:
        part.cap = part.said if read >= part.number else max(part.cap, part.said)

    def share(self, worker: int) -> int:
        """What was sent to it last."""
        return self._parts[worker].sent

    def settle(self, number: int, turn: int = 0) -> list[int]:
        """Bring shares nearer to what is fair; returns whose share has changed, to be sent with this number."""
        wanted = fair(self.bound, {worker: part.demand for worker, part in self._parts.items()}, turn)
        free = self.bound - sum(part.cap for part in self._parts.values())
        changed = []
        for worker, part in self._parts.items():
            share = wanted[worker]
            if share > part.cap:
                share = part.cap + min(share - part.cap, max(0, free))
                free -= share - part.cap
            if share != part.sent:
                part.sent, part.number = share, number
                part.cap = max(part.cap, share)
                changed.append(worker)
        return changed
