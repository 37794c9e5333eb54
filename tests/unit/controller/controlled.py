"""A controller, a fake backend and a real dispatcher between them, on one virtual clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, TypeVar
from unittest import mock

from kilocard.backends.base import ReplicaState
from kilocard.backends.fake import FakeBackend
from kilocard.backends.gpus import Gpu, Inventory
from kilocard.controller.controller import Controller
from kilocard.controller.lease import FileLease, Lease
from kilocard.controller.memory import MemoryFile
from kilocard.controller.sources import InProcess
from kilocard.controller.view import view
from kilocard.core.load import LoadSample
from kilocard.core.reading import GatewayReading
from kilocard.core.replica import Change, Found, Leaving
from kilocard.dispatch import events as ev
from kilocard.dispatch.config import PoolFacts
from kilocard.dispatch.dispatcher import Dispatcher
from kilocard.dispatch.instructions import Drained, Send
from kilocard.dispatch.signals import pool_signals, replica_signals
from kilocard.spec.model import (
    ClusterSpec,
    DrainSpec,
    GpuSpec,
    HoldSpec,
    ModelSpec,
    PoolSpec,
    ReplicaRange,
)
from kilocard.spec.scaling import ScaleStep, ScalingSpec

T = TypeVar("T")
START = 1_700_000_000.0


async def at_once(work: Callable[..., T], *arguments: Any) -> T:
    return work(*arguments)


def run(body: Coroutine[Any, Any, T]) -> T:
    """Small files are written at once in place of in a thread, so that the order of a test is its own."""
    with mock.patch("asyncio.to_thread", at_once):
        return asyncio.run(body)


def cluster(least: int = 1, most: int = 4, *, gpus: int = 0, **pool: Any) -> ClusterSpec:
    """More than 20 wait for 3 s: one more; at most 5 for 6 s: one fewer; nobody asks for 8 s: none, if none may be."""
    scaling = ScalingSpec(up=ScaleStep(20.0, 3.0), down=ScaleStep(5.0, 6.0), cooldown=0.0, idle=8.0)
    one = PoolSpec(
        "p", "emulated", replicas=ReplicaRange(least, most), scaling=scaling, drain=DrainSpec(30.0),
        gpus=GpuSpec(tensor=gpus) if gpus else None, **pool,
    )  # fmt: skip
    return ClusterSpec(models={"m": ModelSpec("m", {"p": 1}, hold=HoldSpec(1000, 60.0))}, pools={"p": one})


class World:
    def __init__(
        self, folder: Path, spec: ClusterSpec | None = None, *, lease: Lease | None = None, gpus: int = 0, **fake: Any
    ) -> None:
        self.spec = spec or cluster()
        self.folder = folder
        facts = {name: PoolFacts() for name in self.spec.pools}
        self.dispatcher = Dispatcher(self.spec.models, facts, Random(1))
        inventory = Inventory(tuple(Gpu(n) for n in range(gpus)), "a fake machine")
        self.backend = FakeBackend(self.spec, self.heard, gpus=inventory, **fake)
        self.clock = self.backend.clock
        self.sent: dict[int, str] = {}
        self.count = 0
        self.deaf = False
        self.controller = self.another(lease)

    def another(self, lease: Lease | None = None, **how: Any) -> Controller:
        """One more controller of the same replicas, with the same files."""
        return Controller(
            self.spec, self.backend, InProcess(self.reading), lease or FileLease(self.folder / "lock"),
            MemoryFile(self.folder / "controller.json"), clock=self.clock, wall=lambda: START + self.clock(), **how,
        )  # fmt: skip

    async def end(self) -> None:
        """The controller ends, the replicas live on."""
        await self.controller.close()
        await self.controller.release()

    # ---- the gateway

    def heard(self, change: Change) -> None:
        now = self.clock()
        if isinstance(change, Found):
            self.tell(ev.ReplicaUp(now, change.endpoint.replica, change.endpoint.pool))
        elif isinstance(change, Leaving):
            self.tell(ev.ReplicaDraining(now, change.replica))
        else:
            self.tell(ev.ReplicaGone(now, change.replica))

    def tell(self, event: ev.Event) -> None:
        for instruction in self.dispatcher.handle(event):
            if isinstance(instruction, Send):
                self.sent[instruction.request] = instruction.replica
            elif isinstance(instruction, Drained):
                self.backend.idle(instruction.replica)

    def reading(self) -> GatewayReading:
        if self.deaf:
            raise RuntimeError("no gateway")
        now, fleet = self.clock(), self.dispatcher.fleet
        return GatewayReading(tuple(pool_signals(fleet, now, "g").values()), tuple(replica_signals(fleet, now)))

    def arrive(self) -> int:
        self.count += 1
        self.tell(ev.Arrived(self.clock(), self.count, "m", 100, 100, 1e9))
        return self.count

    def finish(self, request: int) -> None:
        del self.sent[request]
        self.tell(ev.Finished(self.clock(), request, 200, 10))

    def gauges(self, waiting: float) -> None:
        """All replicas that serve say that so many wait, and that they run what was sent."""
        for id, replica in list(self.dispatcher.fleet.replicas.items()):
            self.tell(ev.Scraped(self.clock(), id, LoadSample(self.clock(), replica.in_flight, waiting, 0.28)))

    # ---- time

    async def seconds(
        self, count: float, *, waiting: float | None = None, controllers: Sequence[Controller] | None = None
    ) -> None:
        """A look a second; `waiting` is what each replica says each second."""
        for _ in range(int(count)):
            self.backend.advance(1.0)
            self.tell(ev.Tick(self.clock()))
            if waiting is not None:
                self.gauges(waiting)
            for controller in controllers or [self.controller]:
                await controller.look()
            await settle()

    # ---- what is there

    def states(self) -> dict[str, str]:
        return {status.id: status.state.value for status in self.backend.replicas()}

    def ready(self) -> list[str]:
        return [status.id for status in self.backend.replicas() if status.state is ReplicaState.READY]

    def kinds(self) -> list[str]:
        return [event.kind.value for event in self.controller.events]

    def pool(self) -> dict[str, Any]:
        [row] = view(self.controller)["pools"]
        return row


def with_range(spec: ClusterSpec, least: int, most: int) -> ClusterSpec:
    pool = replace(spec.pools["p"], replicas=ReplicaRange(least, most))
    return replace(spec, pools={**spec.pools, "p": pool})


async def settle() -> None:
    """Tasks that only wait for each other come to their end."""
    for _ in range(20):
        await asyncio.sleep(0)
