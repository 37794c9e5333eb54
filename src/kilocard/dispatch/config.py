"""What the dispatcher is set up with besides the cluster file's ModelSpecs."""

from __future__ import annotations

from typing import NamedTuple


class PoolFacts(NamedTuple):
    """What the composition root knows of a pool. Requests per replica; None: unknown, or no bound of our own."""

    #: what the engine runs at once (Engine.max_running)
    max_running: int | None = None
    #: most that the gateway lets one replica have (PoolSpec.max_in_flight)
    max_in_flight: int | None = None
    #: that bound holds for several workers together: a replica gets nothing until PeerLoad says what our share is
    shared: bool = False
    #: who has it to themselves (PoolSpec.tenants); empty: everybody's
    tenants: tuple[str, ...] = ()


#: at most this many held requests go to each available replica per event that frees capacity. A replica of unknown
#: capacity can't be flooded by one event; the next Tick goes on
RELEASE_BURST = 16
#: a Probe that is not answered within this many seconds counts as failed
PROBE_TIMEOUT = 10.0
#: pause before the only replica of a model is tried again after it reset the connection, doubled per attempt
ONLY_REPLICA_PAUSE = 0.1
#: Retry-After in seconds, by reason of the refusal
RETRY_AFTER = {"hold_full": 2.0, "hold_timeout": 5.0, "deadline_exceeded": 5.0, "no_replica": 10.0, "not_ready": 10.0}
#: classes of requests, the first served first; `Arrived.priority` is the place in this list
PRIORITIES = ("high", "normal", "low")
