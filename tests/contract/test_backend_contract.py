"""What every backend must do, run on the one in memory and on the one with real processes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fake_engine import FakeEngine, one_pool
from kilocard.backends.base import Backend, ReplicaState, Report
from kilocard.backends.fake import FakeBackend
from kilocard.backends.gpus import Gpu, Inventory
from kilocard.backends.local import LocalBackend
from kilocard.core.errors import BackendError, GpuShortage
from kilocard.core.replica import Change, Found, Leaving, Lost
from kilocard.spec.model import ClusterSpec, GpuSpec

TWO_GPUS = Inventory((Gpu(0), Gpu(1)), "two in this test")
Make = Callable[[ClusterSpec, Report], Backend]


@pytest.fixture(params=["fake", "local"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    def local(spec: ClusterSpec, report: Report) -> Backend:
        return LocalBackend(spec, report, tmp_path, lambda name: FakeEngine(), gpus=TWO_GPUS)

    def fake(spec: ClusterSpec, report: Report) -> Backend:
        return FakeBackend(spec, report, gpus=TWO_GPUS)

    return {"fake": fake, "local": local}[request.param]


@dataclass
class Fleet:
    backend: Backend
    news: list[Change] = field(default_factory=list)

    def states(self) -> dict[str, ReplicaState]:
        return {status.id: status.state for status in self.backend.replicas()}

    def kinds(self, replica: str) -> list[type[Change]]:
        return [
            type(change)
            for change in self.news
            if (change.endpoint.replica if isinstance(change, Found) else change.replica) == replica
        ]

    async def until(self, what: Callable[[], bool]) -> None:
        end = time.monotonic() + 150  # a backend on other machines starts processes of its own first
        while not what():
            assert time.monotonic() < end, (self.news, self.backend.replicas())
            await asyncio.sleep(0.01)

    async def until_ready(self, *replicas: str) -> None:
        await self.until(lambda: all(self.states().get(name) is ReplicaState.READY for name in replicas))


def play(make: Make, spec: ClusterSpec, story: Callable[[Fleet], Awaitable[None]]) -> None:
    async def whole() -> None:
        news: list[Change] = []
        fleet = Fleet(make(spec, news.append), news)
        try:
            await fleet.backend.open()
            await story(fleet)
        finally:
            await fleet.backend.close()
        assert set(fleet.states().values()) <= {ReplicaState.STOPPED}

    asyncio.run(whole())


def test_open_starts_the_least_number_and_tells_when_they_serve(make: Make) -> None:
    async def story(fleet: Fleet) -> None:
        await fleet.until_ready("p-0", "p-1")
        assert fleet.kinds("p-0") == fleet.kinds("p-1") == [Found]
        status = fleet.backend.describe("p-0")
        assert (status.pool, status.restarts, status.reason) == ("p", 0, "")
        assert status.url is not None
        assert status.url.startswith("http://")

    play(make, one_pool(replicas=2), story)


def test_drain_reports_leaving_waits_for_idle_then_lost(make: Make) -> None:
    async def story(fleet: Fleet) -> None:
        await fleet.until_ready("p-0")
        drained = asyncio.create_task(fleet.backend.drain("p-0", "a test"))
        await fleet.until(lambda: fleet.states()["p-0"] is ReplicaState.DRAINING)
        await fleet.until(lambda: fleet.news[-1] == Leaving("p-0", "a test"))
        assert not drained.done()
        fleet.backend.idle("p-0")
        await asyncio.wait_for(drained, 90)
        assert fleet.kinds("p-0") == [Found, Leaving, Lost]
        await fleet.backend.drain("p-0", "again")  # harmless
        fleet.backend.idle("p-0")
        assert fleet.kinds("p-0") == [Found, Leaving, Lost]

    play(make, one_pool(), story)


def test_stop_does_not_wait_for_requests(make: Make) -> None:
    async def story(fleet: Fleet) -> None:
        await fleet.until_ready("p-0")
        await fleet.backend.stop("p-0", "a test")
        assert fleet.kinds("p-0") == [Found, Leaving, Lost]
        assert fleet.states() == {"p-0": ReplicaState.STOPPED}

    play(make, one_pool(), story)


def test_stop_ends_a_drain(make: Make) -> None:
    async def story(fleet: Fleet) -> None:
        await fleet.until_ready("p-0")
        drained = asyncio.create_task(fleet.backend.drain("p-0", "a test"))
        await fleet.until(lambda: fleet.states()["p-0"] is ReplicaState.DRAINING)
        await fleet.backend.stop("p-0", "no time")
        await asyncio.wait_for(drained, 90)
        assert fleet.news[-1] == Lost("p-0", "no time")

    play(make, one_pool(), story)


def test_scale_counts_what_is_on_its_way(make: Make) -> None:
    async def story(fleet: Fleet) -> None:
        await fleet.backend.scale("p", 3)
        await fleet.backend.scale("p", 3)
        assert sorted(fleet.states()) == ["p-0", "p-1", "p-2"]
        await fleet.until_ready("p-0", "p-1", "p-2")
        await fleet.backend.scale("p", 1)
        await fleet.backend.scale("p", 2)  # what drains does not count
        for replica in ("p-1", "p-2"):
            fleet.backend.idle(replica)
        await fleet.until(lambda: fleet.kinds("p-2") == [Found, Leaving, Lost])
        await fleet.until(lambda: list(fleet.states().values()).count(ReplicaState.READY) == 2)
        await fleet.backend.scale("p", 0)
        for replica, state in fleet.states().items():
            assert state is not ReplicaState.READY, replica

    play(make, one_pool(), story)


def test_two_replicas_never_share_a_gpu(make: Make) -> None:
    async def story(fleet: Fleet) -> None:
        assert [status.gpus for status in fleet.backend.replicas()] == [(0,), (1,)]
        before = fleet.states()
        with pytest.raises(GpuShortage, match="pool p: a replica needs 1 GPU, 0 of 2 free: p-0 holds GPU 0; p-1"):
            await fleet.backend.scale("p", 3)
        with pytest.raises(GpuShortage):
            await fleet.backend.start("p")
        assert fleet.states().keys() == before.keys()
        await fleet.backend.stop("p-0", "a test")
        with pytest.raises(GpuShortage):
            await fleet.backend.scale("p", 3)  # one of the two missing could be had: all or nothing
        assert await fleet.backend.start("p") == "p-0"
        assert fleet.backend.describe("p-0").gpus == (0,)

    play(make, one_pool(replicas=2, gpus=GpuSpec()), story)


def test_unknown_names_are_errors_that_say_what_there_is(make: Make) -> None:
    async def story(fleet: Fleet) -> None:
        with pytest.raises(BackendError, match=r"no pool nope; there are: p"):
            await fleet.backend.start("nope")
        with pytest.raises(BackendError, match=r"no pool nope"):
            await fleet.backend.scale("nope", 1)
        with pytest.raises(BackendError, match="can't have -1 replicas"):
            await fleet.backend.scale("p", -1)
        with pytest.raises(BackendError, match=r"no replica p-9; there are: p-0"):
            fleet.backend.describe("p-9")
        for call in (fleet.backend.stop, fleet.backend.drain):
            with pytest.raises(BackendError, match=r"no replica p-9"):
                await call("p-9", "a test")
        fleet.backend.idle("p-9")  # the gateway tells of every replica, also of those that are not ours

    play(make, one_pool(), story)


def test_pools_that_exist_already_are_left_alone(make: Make) -> None:
    async def story(fleet: Fleet) -> None:
        assert fleet.backend.replicas() == ()
        with pytest.raises(BackendError, match="exist already"):
            await fleet.backend.start("p")

    play(make, one_pool(endpoints=("http://10.0.0.1:8000",)), story)


def test_close_may_be_repeated(make: Make) -> None:
    async def story(fleet: Fleet) -> None:
        await fleet.backend.close()
        await fleet.backend.close()

    play(make, one_pool(), story)
