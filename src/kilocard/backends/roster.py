"""Which pools a backend starts replicas of, the replicas' ids, and their GPUs. For backends of one machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from kilocard.backends.base import ACTIVE, ReplicaState, ReplicaStatus
from kilocard.backends.gpus import GpuLedger
from kilocard.core.errors import BackendError, GpuShortage
from kilocard.spec.model import PoolSpec

#: which replicas go first when there are too many: those that serve least
SURPLUS_ORDER = (
    ReplicaState.CRASH_LOOP,
    ReplicaState.RESTARTING,
    ReplicaState.PENDING,
    ReplicaState.STARTING,
    ReplicaState.LOADING,
    ReplicaState.READY,
)


class Seat(NamedTuple):
    """What one new replica is given."""

    replica: str
    pool: str
    gpus: tuple[int, ...]


class Roster:
    """`pools` are started by us; `not_ours` are names of pools whose replicas exist already."""

    def __init__(
        self,
        pools: Mapping[str, PoolSpec],
        not_ours: Iterable[str],
        gpu_count: Callable[[PoolSpec], int],
        ledger: GpuLedger,
    ) -> None:
        self.pools = dict(pools)
        self.ledger = ledger
        self.not_ours = frozenset(not_ours)
        self._gpu_count = gpu_count
        self._living: set[str] = set()

    def pool(self, name: str) -> PoolSpec:
        if name in self.not_ours:
            raise BackendError(f"pool {name}: its replicas exist already; they are not started or stopped from here")
        if name not in self.pools:
            have = ", ".join(sorted(self.pools)) or "none"
            raise BackendError(f"there is no pool {name}; there are: {have}")
        return self.pools[name]

    def seat(self, wanted: Mapping[str, int]) -> list[Seat]:
        """Ids and GPUs for so many new replicas of each pool: for all of them, or GpuShortage and nothing changed."""
        seats: list[Seat] = []
        wide_first = sorted(wanted, key=lambda name: self._gpu_count(self.pools[name]), reverse=True)  # fewer gaps
        try:
            for pool in wide_first:
                for _ in range(wanted[pool]):
                    replica = self._new_id(pool)
                    gpus = self.ledger.take(replica, pool, self._gpu_count(self.pools[pool]))
                    self._living.add(replica)
                    seats.append(Seat(replica, pool, gpus))
        except GpuShortage:
            for seat in seats:
                self.leave(seat.replica)
            raise
        return seats

    def occupy(self, replica: str) -> None:
        """The id belongs to a replica that was found running."""
        self._living.add(replica)

    def leave(self, replica: str) -> None:
        """The replica has stopped: its GPUs and its id are free."""
        self.ledger.give_back(replica)
        self._living.discard(replica)

    def change(self, pool: str, count: int, statuses: Iterable[ReplicaStatus]) -> tuple[int, list[str]]:
        """To have `count` replicas: how many are missing, and which are too many (of equals the newest go)."""
        self.pool(pool)
        if count < 0:
            raise BackendError(f"pool {pool}: can't have {count} replicas")
        active = [status for status in statuses if status.pool == pool and status.state in ACTIVE]
        newest_first = sorted(active, key=lambda status: by_number(status.id), reverse=True)
        least_first = sorted(newest_first, key=lambda status: SURPLUS_ORDER.index(status.state))
        return max(0, count - len(active)), [status.id for status in least_first[: max(0, len(active) - count)]]

    def _new_id(self, pool: str) -> str:
        """The lowest number that no living replica has: ids stay few, and logs are found again."""
        number = 0
        while (name := f"{pool}-{number}") in self._living:
            number += 1
        return name


def by_number(replica: str) -> tuple[str, int]:
    """Sort key of an id: pool, then number."""
    pool, _, number = replica.rpartition("-")
    return pool, int(number)


def no_such(replica: str, have: Iterable[str]) -> BackendError:
    names = ", ".join(sorted(have, key=by_number)) or "none"
    return BackendError(f"there is no replica {replica}; there are: {names}")
