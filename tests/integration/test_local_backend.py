"""The local backend with real processes (a fake engine, see tests/fake_engine.py)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import fake_engine
from fake_engine import FakeEngine, is_alive, one_pool
from kilocard.backends.base import ReplicaState
from kilocard.backends.gpus import Gpu, Inventory
from kilocard.backends.local import LocalBackend
from kilocard.core.errors import BackendError, EngineError, GpuShortage
from kilocard.core.replica import Change, Leaving, Lost
from kilocard.spec.model import ClusterSpec, GpuSpec, StartSpec

pytestmark = pytest.mark.skipif(os.name != "posix", reason="processes and signals are POSIX")
TESTS = Path(fake_engine.__file__).parent


class Bench:
    """A backend and the news that it told."""

    def __init__(self, spec: ClusterSpec, log_dir: Path, **options: Any) -> None:
        self.news: list[Change] = []
        self.engine = options.pop("engine", FakeEngine())
        options.setdefault("gpus", Inventory((), "none in this test"))
        self.backend = LocalBackend(spec, self.news.append, log_dir, lambda name: self.engine, **options)

    async def until(self, what: Callable[[], bool], seconds: float = 40.0) -> None:
        end = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < end, (self.news, self.backend.replicas(), self.tail())
            await asyncio.sleep(0.01)

    async def until_state(self, state: ReplicaState, replica: str = "p-0") -> None:
        await self.until(lambda: self.backend.describe(replica).state is state)

    def tail(self) -> list[Any]:
        return [self.backend.describe(status.id).log for status in self.backend.replicas()]

    def kinds(self) -> list[str]:
        return [type(change).__name__ for change in self.news]


@asynccontextmanager
async def running(spec: ClusterSpec, log_dir: Path, **options: Any) -> Any:
    bench = Bench(spec, log_dir, **options)
    try:
        await bench.backend.open()
        yield bench
    finally:
        await bench.backend.close()
    left = [status.pid for status in bench.backend.replicas() if status.pid is not None]
    assert not left, "close() leaves no process"


def read(path: str) -> str:
    return Path(path).read_text()


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 120))  # type: ignore[arg-type]  # an async function's call is a coroutine


def test_from_start_to_stop(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(one_pool(replicas=2, load=1.5), tmp_path) as bench:
            assert [status.state for status in bench.backend.replicas()] == [ReplicaState.STARTING] * 2
            await bench.until_state(ReplicaState.LOADING)
            await bench.until(lambda: "log: reading the weights" in bench.backend.describe("p-0").reason)
            await bench.until(lambda: len(bench.news) == 2)
            status = bench.backend.describe("p-0")
            assert status.state is ReplicaState.READY
            assert bench.news[0].endpoint.url.startswith("http://127.0.0.1:")
            assert status.phases.loading > 0.2
            assert status.phases.total < 60
            assert status.log[-1] == "engine: loading weights"
            assert read(status.log_file).startswith("kilocard: starting ")
            pids = [status.pid for status in bench.backend.replicas()]
            assert all(map(is_alive, pids))
            await bench.backend.stop("p-0", "a test")
            assert [type(change) for change in bench.news[2:]] == [Leaving, Lost]
            assert bench.backend.describe("p-0").state is ReplicaState.STOPPED
            assert not is_alive(pids[0])
            assert is_alive(pids[1])

    run(test)


def test_a_health_page_alone_is_not_ready_while_the_model_is_missing_from_the_list(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(one_pool(listed_after=1.5), tmp_path) as bench:
            await bench.until(lambda: "lists another, not m" in bench.backend.describe("p-0").reason)
            assert bench.news == []
            await bench.until_state(ReplicaState.READY)

    run(test)


def test_an_engine_that_exits_at_once_becomes_a_crash_loop_with_its_own_words(tmp_path: Path) -> None:
    starts = tmp_path / "starts"

    async def test() -> None:
        async with running(one_pool(dies=3, starts=str(starts)), tmp_path) as bench:
            await bench.until_state(ReplicaState.CRASH_LOOP)
            status = bench.backend.describe("p-0")
            assert "exited with code 3" in status.reason
            assert "the weights are broken" in status.reason
            assert status.restarts == 2
            assert (tmp_path / "p-0.log.1").exists(), "the log of the run before is kept"
            await bench.until(lambda: len(starts.read_text()) > 4)  # still tried, slowly
            assert bench.news == [], "it was never announced"

    run(test)


def test_a_kill_from_outside_is_told_and_the_replica_comes_back(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(one_pool(), tmp_path) as bench:
            await bench.until_state(ReplicaState.READY)
            first = bench.backend.describe("p-0")
            os.kill(first.pid, signal.SIGKILL)
            await bench.until(lambda: bench.kinds() == ["Found", "Lost", "Found"])
            assert "killed by SIGKILL (out of memory?)" in bench.news[1].reason
            again = bench.backend.describe("p-0")
            assert again.restarts == 1
            assert again.pid != first.pid
            assert again.url == first.url, "the address stays while its port is free"

    run(test)


def test_an_engine_that_ignores_sigterm_is_killed_after_the_grace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kilocard.backends.lifecycle.STOP_SECONDS", 0.3)

    async def test() -> None:
        async with running(one_pool(deaf="yes"), tmp_path) as bench:
            await bench.until_state(ReplicaState.READY)
            pid = bench.backend.describe("p-0").pid
            began = time.monotonic()
            await bench.backend.stop("p-0", "a test")
            assert 0.3 <= time.monotonic() - began < 8
            assert not is_alive(pid)

    run(test)


def test_stopping_ends_children_too_even_those_that_left_the_group(tmp_path: Path) -> None:
    family = tmp_path / "family"

    async def test() -> None:
        async with running(one_pool(family=str(family)), tmp_path) as bench:
            await bench.until_state(ReplicaState.READY)
            pids = json.loads(family.read_text())
            assert pids[0] == bench.backend.describe("p-0").pid
            assert all(map(is_alive, pids))
            await bench.backend.stop("p-0", "a test")
            if sys.platform != "linux":
                del pids[2]  # only Linux knows subreapers
            await bench.until(lambda: not any(map(is_alive, pids)))

    run(test)


def test_drain_waits_for_idle(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(one_pool(), tmp_path) as bench:
            await bench.until_state(ReplicaState.READY)
            drained = asyncio.create_task(bench.backend.drain("p-0", "a new version"))
            await bench.until(lambda: bench.kinds() == ["Found", "Leaving"])
            await asyncio.sleep(0.2)
            assert bench.backend.describe("p-0").state is ReplicaState.DRAINING
            assert is_alive(bench.backend.describe("p-0").pid)
            bench.backend.idle("p-0")
            await asyncio.wait_for(drained, 40)
            assert bench.news[-1] == Lost("p-0", "a new version")

    run(test)


def test_drain_ends_with_the_grace(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(one_pool(grace=0.2), tmp_path) as bench:
            await bench.until_state(ReplicaState.READY)
            await asyncio.wait_for(bench.backend.drain("p-0", "a new version"), 40)
            assert "not idle after 0.2 s" in bench.news[-1].reason

    run(test)


def test_not_ready_in_time_is_a_failure_with_a_reason(tmp_path: Path) -> None:
    start = StartSpec(timeout=2.5, crash_loop=2, backoff=0.05, backoff_max=30)

    async def test() -> None:
        async with running(one_pool(load=60, start=start), tmp_path) as bench:
            await bench.until_state(ReplicaState.CRASH_LOOP)
            reason = bench.backend.describe("p-0").reason
            assert "not ready after 2.5 s (start.timeout); last news: " in reason
            assert "answers 503: Loading model; log: reading the weights" in reason

    run(test)


def test_an_engine_that_says_it_cannot_serve_leaves_the_routing_and_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kilocard.backends.runner.READY_INTERVAL", 0.05)
    unready = tmp_path / "unready"

    async def test() -> None:
        async with running(one_pool(unready=str(unready)), tmp_path) as bench:
            await bench.until_state(ReplicaState.READY)
            pid = bench.backend.describe("p-0").pid
            unready.touch()
            await bench.until(lambda: bench.kinds() == ["Found", "Leaving"])
            unready.unlink()
            await bench.until(lambda: bench.kinds() == ["Found", "Leaving", "Found"])
            assert bench.backend.describe("p-0").pid == pid, "it was not killed for it"

    run(test)


def test_scaling_up_and_down(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(one_pool(grace=0.1), tmp_path) as bench:
            await bench.backend.scale("p", 3)
            await bench.until(lambda: bench.kinds() == ["Found"] * 3)
            ports = {change.endpoint.url for change in bench.news}
            assert len(ports) == 3
            await bench.backend.scale("p", 1)
            await bench.until(lambda: bench.kinds().count("Lost") == 2)
            assert [s.id for s in bench.backend.replicas() if s.state is ReplicaState.READY] == ["p-0"]
            assert await bench.backend.start("p") == "p-1", "ids of stopped replicas are used again"

    run(test)


def test_gpus_are_exclusive_and_visible_to_their_replica_only(tmp_path: Path) -> None:
    gpus = Inventory(tuple(Gpu(index) for index in range(4)), "four in this test")
    seen = tmp_path / "env"

    async def test() -> None:
        spec = one_pool(replicas=2, gpus=GpuSpec(tensor=2), env=str(seen))
        async with running(spec, tmp_path, gpus=gpus) as bench:
            assert [status.gpus for status in bench.backend.replicas()] == [(0, 1), (2, 3)]
            with pytest.raises(GpuShortage, match="p-0 holds GPUs 0,1; p-1 holds GPUs 2,3"):
                await bench.backend.start("p")
            await bench.until(lambda: bench.kinds() == ["Found"] * 2)
            await bench.backend.stop("p-1", "a test")
            assert await bench.backend.start("p") == "p-1"
            await bench.until(lambda: bench.backend.describe("p-1").state is ReplicaState.READY)
            env = json.loads(seen.read_text())
            assert env["CUDA_VISIBLE_DEVICES"] == "2,3"
            assert env["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"

    run(test)


def test_what_can_never_work_is_an_error_before_anything_starts(tmp_path: Path) -> None:
    async def test() -> None:
        for spec, engine, error, words in (
            (one_pool(impossible="yes"), FakeEngine(), EngineError, "args.impossible"),
            (
                one_pool(),
                FakeEngine(program=("no-such-engine",)),
                BackendError,
                "can't find the program no-such-engine",
            ),
            (one_pool(gpus=GpuSpec()), FakeEngine(), GpuShortage, "this machine has none"),
        ):
            bench = Bench(spec, tmp_path, engine=engine)
            with pytest.raises(error, match=words):
                await bench.backend.open()
            assert bench.backend.replicas() == ()
            await bench.backend.close()

    run(test)


def test_pools_with_endpoints_are_not_started(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(one_pool(endpoints=("http://10.0.0.1:8000",)), tmp_path) as bench:
            assert bench.backend.replicas() == ()
            with pytest.raises(BackendError, match="exist already"):
                await bench.backend.scale("p", 2)

    run(test)


def test_nothing_survives_a_sigkill_of_kilocard(tmp_path: Path) -> None:
    """Engine (deaf to SIGTERM), its child and its grandchild in another session are gone."""
    family = tmp_path / "family"
    parent = textwrap.dedent(f"""
        import asyncio, sys
        sys.path.insert(0, {str(TESTS)!r})
        from pathlib import Path
        from fake_engine import FakeEngine, one_pool
        from kilocard.backends.gpus import Inventory
        from kilocard.backends.local import LocalBackend

        async def main():
            spec = one_pool(family={str(family)!r}, deaf="yes")
            backend = LocalBackend(spec, lambda change: print(change, flush=True), Path({str(tmp_path)!r}),
                                   lambda name: FakeEngine(), gpus=Inventory((), ""))
            await backend.open()
            await asyncio.sleep(60)

        asyncio.run(main())
    """)
    process = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("Found")
        pids = json.loads(family.read_text())
        assert all(map(is_alive, pids))
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    if sys.platform != "linux":
        del pids[2]
    end = time.monotonic() + 20.0
    while any(map(is_alive, pids)):
        assert time.monotonic() < end, [pid for pid in pids if is_alive(pid)]
        time.sleep(0.02)


def test_the_engine_does_not_survive_a_sigkill_of_its_guard(tmp_path: Path) -> None:
    family = tmp_path / "family"

    async def test() -> None:
        async with running(one_pool(family=str(family)), tmp_path) as bench:
            await bench.until_state(ReplicaState.READY)
            *pids, stray = json.loads(family.read_text())  # the one that left the group has no keeper any more
            guard = int(read(f"/proc/{pids[0]}/stat").rpartition(")")[2].split()[1])
            os.kill(guard, signal.SIGKILL)
            try:
                await bench.until(lambda: not any(map(is_alive, pids)))
            finally:
                os.kill(stray, signal.SIGKILL)
            await bench.until(lambda: bench.kinds() == ["Found", "Lost", "Found"])

    if sys.platform != "linux":
        pytest.skip("needs PR_SET_PDEATHSIG")
    run(test)
