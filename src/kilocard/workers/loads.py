"""What each worker has on each replica, and what the others need to hear of it. Pure; the supervisor's half.

Every worker reports what has changed. Each of the others is sent the sum of all but itself. A worker that dies takes
its load with it at once: its connections to the engines are closed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kilocard.workers.shares import Shares

#: rounds of news (20 ms each) after which a slot that many want goes to the next of them
TURN = 50


class Row(NamedTuple):
    """One worker's requests on one replica. Counts, and tokens as the dispatcher estimates them."""

    replica: str
    in_flight: int = 0
    #: of these, without a first byte
    pending: int = 0
    prefill: int = 0
    decode: int = 0
    context: int = 0
    #: requests in that worker's hold queues that could go there, its part of them
    held: int = 0
    #: the most that this worker may have there now; 0 where its pool has no bound
    cap: int = 0


class Others(NamedTuple):
    """What one worker has to know of one replica: the sum of all other workers, and its own share of the bound."""

    replica: str
    in_flight: int
    pending: int
    prefill: int
    decode: int
    context: int
    share: int | None


class Loads:
    """`bounds`: max_in_flight by pool, for the pools that have one."""

    def __init__(self, bounds: Mapping[str, int]) -> None:
        self._bounds = dict(bounds)
        #: by worker, then by replica
        self._rows: dict[int, dict[str, Row]] = {}
        #: what is sent as a number: it rises with each round of news
        self._number = 0
        self._shares: dict[str, Shares] = {}
        #: bounded replicas whose shares may be other than they should be
        self._unsettled: dict[str, None] = {}
        #: by worker: bounded replicas whose share it has not read yet, and the number that it was sent with
        self._unread: dict[int, dict[str, int]] = {}
        #: replicas of which somebody has something new to hear, by worker
        self._stale: dict[int, dict[str, None]] = {}

    @property
    def workers(self) -> list[int]:
        return list(self._rows)

    def found(self, replica: str, pool: str) -> None:
        """A replica is there (again). Repeated news is harmless."""
        bound = self._bounds.get(pool)
        if bound is not None and replica not in self._shares:
            shares = self._shares[replica] = Shares(bound)
            for worker in self._rows:
                shares.join(worker)
            self._unsettled[replica] = None

    def rebound(self, bounds: Mapping[str, int], pools: Mapping[str, str]) -> None:
        """Other bounds by pool; `pools` has the pool of each replica. A bound that is lowered, or new, holds as soon as
        workers have heard of it and what runs above it has ended."""
        self._bounds = dict(bounds)
        for replica, pool in pools.items():
            bound = bounds.get(pool)
            shares = self._shares.get(replica)
            if bound is None:
                if shares is not None:
                    del self._shares[replica]
                    for worker, stale in self._stale.items():
                        stale[replica] = None
                        self._unread[worker].pop(replica, None)
            elif shares is None:
                self.found(replica, pool)
                for worker, rows in self._rows.items():
                    if replica in rows:  # what it has there without a share
                        in_flight = rows[replica].in_flight
                        self._shares[replica].report(worker, in_flight, in_flight, 0)
            else:
                shares.bound = bound
        self._unsettled = dict.fromkeys(self._shares)

    def lost(self, replica: str) -> None:
        self._shares.pop(replica, None)
        self._unsettled.pop(replica, None)
        for worker, rows in self._rows.items():
            rows.pop(replica, None)
            self._stale[worker].pop(replica, None)
            self._unread[worker].pop(replica, None)

    def join(self, worker: int) -> None:
        """A new worker: it needs to hear of everything."""
        self._rows[worker] = {}
        self._unread[worker] = {}
        for shares in self._shares.values():
            shares.join(worker)
        self._unsettled = dict.fromkeys(self._shares)
        known = {replica for rows in self._rows.values() for replica in rows}
        self._stale[worker] = dict.fromkeys(sorted(known))

    def leave(self, worker: int) -> None:
        rows = self._rows.pop(worker, {})
        self._stale.pop(worker, None)
        self._unread.pop(worker, None)
        for shares in self._shares.values():
            shares.leave(worker)
        self._unsettled = dict.fromkeys(self._shares)
        self._spread(rows, worker)

    def report(self, worker: int, rows: Iterable[Row], read: int) -> None:
        """What has changed at a worker, which had then read the news up to number `read`."""
        mine = self._rows.get(worker)
        if mine is None:
            return
        changed = {}
        for row in rows:
            mine[row.replica] = changed[row.replica] = row
            shares = self._shares.get(row.replica)
            if shares is not None:
                shares.report(worker, row.in_flight + row.held, row.cap, read)
                self._unsettled[row.replica] = None
        unread = self._unread[worker]
        for replica in [replica for replica, number in unread.items() if number <= read]:
            del unread[replica]
            self._shares[replica].read(worker, read)
            self._unsettled[replica] = None
        self._spread(changed, worker)

    def _spread(self, replicas: Iterable[str], but: int) -> None:
        for worker, stale in self._stale.items():
            if worker != but:
                stale.update(dict.fromkeys(replicas))

    def news(self) -> tuple[int, dict[int, list[Others]]]:
        """What each worker has to hear since the last call, by worker, and the number of this round."""
        self._number += 1
        turn, begun = divmod(self._number, TURN)
        for replica in self._unsettled if begun else self._shares:
            for worker in self._shares[replica].settle(self._number, turn):
                self._stale[worker][replica] = None
                self._unread[worker][replica] = self._number
        self._unsettled.clear()
        out = {}
        for worker, stale in self._stale.items():
            if stale:
                out[worker] = [self._others(worker, replica) for replica in stale]
                stale.clear()
        return self._number, out

    def _others(self, worker: int, replica: str) -> Others:
        rows = [rows[replica] for other, rows in self._rows.items() if other != worker and replica in rows]
        shares = self._shares.get(replica)
        return Others(
            replica,
            sum(row.in_flight for row in rows),
            sum(row.pending for row in rows),
            sum(row.prefill for row in rows),
            sum(row.decode for row in rows),
            sum(row.context for row in rows),
            None if shares is None else shares.share(worker),
        )

    def in_flight(self, replica: str) -> int:
        """Of all workers."""
        return sum(rows[replica].in_flight for rows in self._rows.values() if replica in rows)
