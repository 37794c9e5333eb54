"""What a backend lists, in the words that whoever decides about numbers uses."""

from __future__ import annotations

from kilocard.backends.base import ReplicaState, ReplicaStatus
from kilocard.core.signals import Phase, ReplicaSignals

#: None: it is no more
PHASES: dict[ReplicaState, Phase | None] = {
    ReplicaState.PENDING: Phase.PENDING,
    ReplicaState.STARTING: Phase.STARTING,
    ReplicaState.LOADING: Phase.LOADING,
    ReplicaState.READY: Phase.READY,
    ReplicaState.RESTARTING: Phase.FAILING,
    ReplicaState.CRASH_LOOP: Phase.FAILING,
    ReplicaState.DRAINING: Phase.DRAINING,
    ReplicaState.STOPPING: Phase.DRAINING,
    ReplicaState.STOPPED: None,
}


def listed(status: ReplicaStatus, now: float, *, leaves: bool) -> ReplicaSignals | None:
    """`now`: of the backend's clock. `leaves`: it was chosen to go, whether the backend shows that yet or not."""
    phase = PHASES[status.state]
    if phase is None:
        return None
    return ReplicaSignals(
        status.id, status.pool, Phase.DRAINING if leaves else phase, since_s=max(0.0, now - status.since)
    )
