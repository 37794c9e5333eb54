"""The programs that ask a dispatcher what to do, each made of a cluster file and a seed as when it starts.

A further program is one class more in DRIVERS: every parity test then holds it to the others' decisions.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from random import Random
from typing import Any, Protocol

from kilocard.cli.simulate_input import Sizes, pool_models, scenario
from kilocard.dispatch.config import PoolFacts
from kilocard.dispatch.events import Event
from kilocard.dispatch.instructions import Instruction
from kilocard.dispatch.replay import Setup, header, read_header
from kilocard.engines.registry import engine
from kilocard.gateway.server import Gateway
from kilocard.sim import gateway as sim
from kilocard.sim.cluster import Cluster
from kilocard.sim.scenario import Signals
from kilocard.spec.model import ClusterSpec
from kilocard.workload.request import WorkloadRequest


class Driver(Protocol):
    """`seed`: what the dispatcher draws from, as a log's header has it."""

    def __init__(self, spec: ClusterSpec, seed: int) -> None: ...

    def tell(self, event: Event) -> Sequence[Instruction]: ...


def setup_of(spec: ClusterSpec, seed: int) -> Setup:
    """What a log's header says."""
    facts = {
        name: PoolFacts(engine(pool.engine).max_running(pool), pool.max_in_flight, tenants=pool.tenants)
        for name, pool in spec.pools.items()
    }
    return Setup(spec.models, facts, seed, spec.gateway.scrape_interval)


class Replayed:
    """`kilocard replay`: of a header that was read from a file."""

    def __init__(self, spec: ClusterSpec, seed: int) -> None:
        written = json.dumps(header(setup_of(spec, seed), "test", 0.0, 0.0))
        self.tell = read_header(json.loads(written)).dispatcher().handle


class Simulated:
    """One gateway of `kilocard simulate`."""

    def __init__(self, spec: ClusterSpec, seed: int) -> None:
        made = simulated(spec, [WorkloadRequest(0.0, 1, 1)], seed)
        cluster = Cluster(made, [])
        gateway = sim.Gateway(made, Random(seed), cluster.kernel, {}, cluster.results, lambda now, replica: None)
        self.tell = gateway.dispatcher.handle


def simulated(spec: ClusterSpec, requests: Sequence[WorkloadRequest], seed: int, **more: Any) -> Any:
    """The scenario that `kilocard simulate` makes of a cluster file."""
    pools, _ = pool_models(spec, Sizes(profiles=("small-fast",)), 2.0)
    usual: dict[str, Any] = {"gateways": 1, "signals": Signals(scrape_s=spec.gateway.scrape_interval), "faults": ()}
    return scenario(spec, pools, requests, seed=seed, **usual | more)


class _Seeded(Random):
    """The chance from which a gateway draws its dispatcher's seed."""

    def getrandbits(self, bits: int) -> int:
        assert bits == 53
        return self.seed_to_give

    seed_to_give = 0


class Served:
    """`kilocard gateway`: what its data plane tells events to."""

    def __init__(self, spec: ClusterSpec, seed: int) -> None:
        chance = _Seeded()
        chance.seed_to_give = seed

        async def made() -> Gateway:
            return Gateway(spec, rng=chance)

        self._gateway = asyncio.run(made())
        self.tell = self._gateway.plane.handle


DRIVERS: tuple[type[Driver], ...] = (Replayed, Simulated, Served)
