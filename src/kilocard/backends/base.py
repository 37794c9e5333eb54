"""The seam: what a place that runs replicas can be asked to do, and how it describes them.

A backend owns replicas, never traffic. It tells news through a `report` callback that it is made with: Found when
a replica can serve, Leaving when it must get no new requests, Lost when it is no more. Whoever counts requests
answers Leaving with `idle(replica)` once the last one has ended.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from kilocard.core.replica import Change
from kilocard.spec.model import ClusterSpec

Report = Callable[[Change], None]


class ReplicaState(StrEnum):
    PENDING = "pending"  # no node has room for it yet; it starts by itself when one has
    STARTING = "starting"  # the process is there, its port does not answer yet
    LOADING = "loading"  # it shows signs of life but can't serve yet (or can't serve any more)
    READY = "ready"
    DRAINING = "draining"  # no new requests, running ones finish
    STOPPING = "stopping"  # told to exit
    RESTARTING = "restarting"  # it exited; the next start waits for the back-off
    CRASH_LOOP = "crash_loop"  # it keeps exiting soon after its start; tried again rarely
    STOPPED = "stopped"  # it was asked to stop, and did


#: states whose replica counts as one that the pool has (stopping and stopped ones are on their way out)
ACTIVE = frozenset(
    {
        ReplicaState.PENDING,
        ReplicaState.STARTING,
        ReplicaState.LOADING,
        ReplicaState.READY,
        ReplicaState.RESTARTING,
        ReplicaState.CRASH_LOOP,
    }
)


@dataclass(frozen=True, slots=True)
class StartPhases:
    """Where the time of the latest start went, in seconds. None: not got so far.

    `starting` ends with the first sign of life (the port answers, or the log tells of loading); `loading` ends
    when the replica can serve.
    """

    starting: float | None = None
    loading: float | None = None

    @property
    def total(self) -> float | None:
        if self.starting is None or self.loading is None:
            return None
        return self.starting + self.loading


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """One replica, as people and the admin API see it."""

    id: str
    pool: str
    state: ReplicaState
    #: http://host:port; None while it has no address
    url: str | None = None
    #: the engine's process id; None: no process, or one on another machine
    pid: int | None = None
    #: indices of the GPUs that are this replica's alone
    gpus: tuple[int, ...] = ()
    #: when this state began, in monotonic seconds of the backend's clock
    since: float = 0.0
    #: why it is in this state, in plain words; "" where there is nothing to say
    reason: str = ""
    #: starts after the first
    restarts: int = 0
    phases: StartPhases = StartPhases()
    #: last lines of the engine's log, oldest first
    log: tuple[str, ...] = ()
    #: where the whole log is
    log_file: str | None = None


class Backend(Protocol):
    """Every method raises BackendError for an unknown pool or replica, or where the backend can't do it.

    Methods that change something are safe to repeat: draining a draining replica is no error.
    """

    def replicas(self) -> tuple[ReplicaStatus, ...]:
        """All replicas, stopped ones too until their id is used again; ordered by pool, then number. No log lines."""

    def describe(self, replica: str) -> ReplicaStatus:
        """One replica with its last log lines."""

    async def open(self) -> None:
        """Start the least number of replicas of each pool. Returns when they are on their way, not when ready."""

    async def start(self, pool: str) -> str:
        """Add one replica; returns its id at once. Found is reported when it can serve.

        Where no group of GPUs is free: a backend that queues leaves it pending, others raise GpuShortage.
        """

    async def scale(self, pool: str, count: int) -> None:
        """Have `count` replicas: starts missing ones, drains surplus ones (those that serve least first).

        Returns when all are on their way. Where GPUs are short: as start, and GpuShortage changes nothing.
        """

    async def drain(self, replica: str, reason: str) -> None:
        """Report Leaving, wait for `idle` or the pool's grace, stop it. Returns when it has stopped."""

    def idle(self, replica: str) -> None:
        """The replica has no request left.

        Ignored unless it drains, since the news may come late, and unless it is one of ours: whoever counts
        requests tells of every replica. Never raises.
        """

    async def stop(self, replica: str, reason: str) -> None:
        """Stop it without waiting for its requests. Returns when it has stopped."""

    async def close(self) -> None:
        """Stop everything and forget nothing: afterwards all replicas are `stopped`. Safe to repeat."""


class FollowingBackend(Backend, Protocol):
    """A backend that follows a changed cluster file while replicas run."""

    def as_started(self, spec: ClusterSpec) -> tuple[ClusterSpec, list[str]]:
        """What `change` is to be given, and the keys that wait for a restart of the replicas (see as_started.py)."""

    async def change(self, spec: ClusterSpec, take_over: Callable[[], None]) -> None:
        """Pools that are new start, those that are gone drain and stop, others follow `replicas.min` and `max`.

        Whatever may fail comes first and changes nothing. Then `take_over` tells whoever routes, then replicas are
        started and drained.
        """
