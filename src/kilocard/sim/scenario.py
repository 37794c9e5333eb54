"""What is simulated, as data: pools and their speed, gateways, signals, faults. The workload comes beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kilocard.core.errors import UsageError
from kilocard.dispatch.config import PoolFacts
from kilocard.perf.profile import Profile
from kilocard.sim.autoscaling import Decides
from kilocard.sim.faults import Fault
from kilocard.spec.model import ModelSpec, Timeouts

#: seconds between two Ticks of a gateway
TICK_S = 0.1
#: each has a dispatcher of its own
MOST_GATEWAYS = 1_000


@dataclass(frozen=True, slots=True)
class PoolModel:
    """Replicas of one pool. They are named POOL-0, POOL-1 …"""

    name: str
    profile: Profile
    replicas: int
    facts: PoolFacts = PoolFacts()  # noqa: RUF009  # frozen, so shared safely
    #: GPUs that one replica takes, for GPU-hours; 0: it runs without
    gpus: int = 1
    #: from a start (also after a crash) until it serves: process, weights, warm-up
    load_s: float = 60.0
    prefix_cache: bool = True
    #: makes what decides how many there are, anew for each run; None: the number stays
    scaler: Callable[[], Decides] | None = None
    #: a replica that leaves has so long to finish what it runs
    grace_s: float = 120.0

    def __post_init__(self) -> None:
        if self.replicas < 0 or self.load_s < 0:
            raise UsageError(f"pool {self.name}: {self.replicas} replicas, {self.load_s:g} s to load: 0 or more")


#: each reading is an event of each gateway and replica: no gateway reads faster, and a simulation would not end
LEAST_SCRAPE_S = 0.001


@dataclass(frozen=True, slots=True)
class Signals:
    """How old what a gateway knows of a replica is. Seconds.

    Each gateway reads each replica's gauges every `scrape_s`, give or take the share `jitter`, at phases of its own,
    and knows them `delay_s` after they were true.
    """

    scrape_s: float = 1.0
    delay_s: float = 0.01
    jitter: float = 0.1
    #: between client and gateway nothing; between gateway and engine, one way
    hop_s: float = 0.0005

    def __post_init__(self) -> None:
        if self.scrape_s < LEAST_SCRAPE_S:
            raise UsageError(
                f"a replica is read every {self.scrape_s:g} s: {LEAST_SCRAPE_S:g} s at least are simulated (--scrape)"
            )
        if self.delay_s < 0 or self.hop_s < 0 or not 0 <= self.jitter < 1:
            raise UsageError(f"signals: {self} needs times of 0 or more, and a jitter below 1")


@dataclass(frozen=True, slots=True)
class Tenant:
    """How the gateway treats whose requests these are. `priority` is a place in dispatch.config.PRIORITIES."""

    priority: int = 1
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Scenario:
    models: Mapping[str, ModelSpec]
    pools: tuple[PoolModel, ...]
    #: gateways that do not see each other's requests; arrivals are spread over them by chance
    gateways: int = 1
    signals: Signals = Signals()
    timeouts: Timeouts = Timeouts()  # noqa: RUF009  # frozen, so shared safely
    tenants: Mapping[str, Tenant] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()
    #: what clients declare as max_tokens, or the gateway assumes: no policy sees how long an answer will be
    declared_tokens: int = 256
    seed: int = 0
    #: seconds between two readings of the whole cluster for the report's curves
    sample_s: float = 1.0

    def __post_init__(self) -> None:
        if not self.models:
            raise UsageError("a simulation needs a model")
        if not 1 <= self.gateways <= MOST_GATEWAYS:
            raise UsageError(f"{self.gateways} gateways: from 1 to {MOST_GATEWAYS:,}")
        if self.sample_s <= 0:
            raise UsageError(f"a reading every {self.sample_s:g} s: it must be above 0")
        if not self.replicas and not any(pool.scaler for pool in self.pools):
            raise UsageError("a simulation needs a replica at least")

    @classmethod
    def of_one(cls, profile: Profile, replicas: int, policy: str = "queue_depth", **more: Any) -> Scenario:
        """One model `m` on one pool `p` of such replicas, with the cluster file's usual values."""
        pool = PoolModel("p", profile, replicas, PoolFacts(max_running=profile.max_num_seqs))
        return cls({"m": ModelSpec("m", {"p": 1}, policy)}, (pool,), **more)

    @property
    def replicas(self) -> int:
        """At the start."""
        return sum(pool.replicas for pool in self.pools)
