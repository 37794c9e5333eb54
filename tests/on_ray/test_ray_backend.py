"""The Ray backend on a real Ray, with real processes (tests/fake_engine.py)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from fleet import all_gone, family_of, run, running

from fake_engine import is_alive, one_pool
from kilocard.backends.base import ReplicaState as S
from kilocard.spec.model import GpuSpec


def test_from_start_to_stop_with_a_whole_family_of_processes(nodes: Any, node: Any, tmp_path: Path) -> None:
    family = tmp_path / "family"

    async def test() -> None:
        async with running(nodes, one_pool(load=0.4, family=str(family))) as fleet:
            await fleet.until_ready("p-0")
            assert fleet.seen[0] == ("p-0", S.PENDING)
            status = fleet.backend.describe("p-0")
            assert status.url.startswith("http://127.0.0.")
            assert status.log[-1] == "engine: loading weights"
            assert fleet.kinds() == ["Found"]
            pids = family_of(family)
            assert all(map(is_alive, pids))
            await fleet.backend.stop("p-0", "a test")
            assert fleet.kinds() == ["Found", "Leaving", "Lost"]
            await all_gone(pids)

    run(test)


def test_a_killed_engine_is_started_again_by_its_actor(nodes: Any, node: Any, tmp_path: Path) -> None:
    family = tmp_path / "family"

    async def test() -> None:
        async with running(nodes, one_pool(family=str(family))) as fleet:
            await fleet.until_ready("p-0")
            os.kill(family_of(family)[0], signal.SIGKILL)
            await fleet.until(lambda: fleet.kinds() == ["Found", "Lost", "Found"])
            assert "killed by SIGKILL" in fleet.news[1].reason
            assert fleet.backend.describe("p-0").restarts == 1

    run(test)


@pytest.mark.parametrize("how", ["ray.kill", "SIGKILL of its process"])
def test_a_killed_actor_takes_its_engine_with_it_and_the_replica_comes_back(
    nodes: Any, node: Any, tmp_path: Path, how: str
) -> None:
    import ray

    family = tmp_path / "family"

    async def test() -> None:
        async with running(nodes, one_pool(family=str(family))) as fleet:
            await fleet.until_ready("p-0")
            pids = family_of(family)
            [actor] = [ray.get_actor(name) for name in ray.util.list_named_actors()]
            if how == "ray.kill":
                ray.kill(actor)
            else:
                guard = parent_of(pids[0])
                os.kill(parent_of(guard), signal.SIGKILL)
            await all_gone(pids)
            await fleet.until(lambda: fleet.kinds() == ["Found", "Lost", "Found"])
            assert "killed by `ray.kill`" in fleet.news[1].reason or "worker process has died" in fleet.news[1].reason
            assert fleet.backend.describe("p-0").restarts == 1
            assert set(family_of(family)).isdisjoint(pids)

    run(test)


def test_drain_waits_for_idle(nodes: Any, node: Any) -> None:
    async def test() -> None:
        async with running(nodes, one_pool()) as fleet:
            await fleet.until_ready("p-0")
            drained = asyncio.create_task(fleet.backend.drain("p-0", "a new version"))
            await fleet.until(lambda: fleet.kinds() == ["Found", "Leaving"])
            await asyncio.sleep(0.3)
            assert fleet.states() == {"p-0": S.DRAINING}
            fleet.backend.idle("p-0")
            await asyncio.wait_for(drained, 20)
            assert fleet.kinds() == ["Found", "Leaving", "Lost"]

    run(test)


def test_a_drain_that_comes_before_the_host_is_there_is_not_lost(nodes: Any, node: Any) -> None:
    async def test() -> None:
        async with running(nodes, one_pool()) as fleet:
            await fleet.until(lambda: fleet.states()["p-0"] is S.STARTING)
            await asyncio.wait_for(fleet.backend.drain("p-0", "a change of mind"), 120)
            assert fleet.states() == {"p-0": S.STOPPED}
            assert fleet.kinds() in ([], ["Found", "Leaving", "Lost"])

    run(test)


def test_idle_may_come_right_after_the_drain(nodes: Any, node: Any) -> None:
    async def test() -> None:
        async with running(nodes, one_pool()) as fleet:
            await fleet.until_ready("p-0")
            await fleet.backend.scale("p", 0)
            fleet.backend.idle("p-0")
            await fleet.until(lambda: fleet.states()["p-0"] is S.STOPPED, 30)
            assert "not idle" not in fleet.news[-1].reason

    run(test)


def test_drain_ends_with_its_grace(nodes: Any, node: Any) -> None:
    async def test() -> None:
        async with running(nodes, one_pool(grace=0.3)) as fleet:
            await fleet.until_ready("p-0")
            await asyncio.wait_for(fleet.backend.drain("p-0", "a new version"), 20)
            assert "not idle after 0.3 s" in fleet.news[-1].reason

    run(test)


def test_a_replica_without_room_is_pending_until_a_node_comes(nodes: Any, node: Any) -> None:
    async def test() -> None:
        async with running(nodes, one_pool()) as fleet:
            await fleet.backend.scale("p", 3)
            await fleet.until_ready("p-0", "p-1")
            await fleet.until(lambda: "waits for 1 free CPU on a node" in fleet.backend.describe("p-2").reason)
            assert fleet.states()["p-2"] is S.PENDING
            more = nodes.add(cpus=1)
            try:
                await fleet.until_ready("p-2")
                await fleet.backend.scale("p", 1)
                for replica in ("p-1", "p-2"):
                    fleet.backend.idle(replica)
                await fleet.until(lambda: list(fleet.states().values()).count(S.STOPPED) == 2)
            finally:
                nodes.remove(more)

    run(test)


def test_a_pending_replica_stops_at_once_and_leaves_nothing_that_would_take_a_place_later(nodes: Any) -> None:
    from ray.util import placement_group_table

    async def test() -> None:
        async with running(nodes, one_pool(replicas=0)) as fleet:
            assert await fleet.backend.start("p") == "p-0"
            await fleet.until(lambda: "no node could hold 1 CPU" in fleet.backend.describe("p-0").reason)
            await asyncio.wait_for(fleet.backend.stop("p-0", "a test"), 5)
            assert {table["state"] for table in placement_group_table().values()} <= {"REMOVED"}
            assert fleet.news == [], "nobody was ever told of it"

    run(test)


def test_a_lost_node_is_told_and_its_replica_moves(nodes: Any, tmp_path: Path) -> None:
    family = tmp_path / "family"

    async def test() -> None:
        first = nodes.add(cpus=1)
        async with running(nodes, one_pool(family=str(family))) as fleet:
            await fleet.until_ready("p-0")
            pids = family_of(family)
            second = nodes.add(cpus=1)
            try:
                nodes.kill(first)
                await all_gone(pids, 20)
                await fleet.until(lambda: fleet.kinds() == ["Found", "Lost", "Found"])
                assert "node" in fleet.news[1].reason
            finally:
                nodes.remove(second)

    run(test)


def test_an_engine_that_exits_at_once_becomes_a_crash_loop_with_its_own_words(nodes: Any, node: Any) -> None:
    async def test() -> None:
        async with running(nodes, one_pool(dies=3)) as fleet:
            await fleet.until(lambda: fleet.states()["p-0"] is S.CRASH_LOOP)
            assert "exited with code 3: RuntimeError: the weights are broken" in fleet.backend.describe("p-0").reason
            assert "RuntimeError: the weights are broken" in (await fleet.backend.log("p-0"))[-1]
            assert fleet.news == []

    run(test)


def test_an_engine_is_not_slowed_down_by_rays_own_settings(nodes: Any, node: Any, tmp_path: Path) -> None:
    async def test() -> None:
        async with running(nodes, one_pool(env=str(tmp_path / "env"))) as fleet:
            await fleet.until_ready("p-0")

    run(test)
    env = dict(json.loads((tmp_path / "env").read_text()))
    assert env["CUDA_VISIBLE_DEVICES"] == ""
    assert [name for name in env if name.startswith(("RAY_", "OMP_"))] == []


def test_gpus_are_given_out_by_ray_and_never_twice(nodes: Any, tmp_path: Path) -> None:
    async def test() -> None:
        node = nodes.add(cpus=4, gpus=3)
        try:
            spec = one_pool(replicas=2, gpus=GpuSpec(tensor=2), env=str(tmp_path / "env"))
            async with running(nodes, spec) as fleet:
                await fleet.until(lambda: sorted(fleet.states().values()) == [S.PENDING, S.READY])
                [ready] = [status for status in fleet.backend.replicas() if status.state is S.READY]
                [pending] = [status for status in fleet.backend.replicas() if status.state is S.PENDING]
                assert len(set(ready.gpus)) == 2
                assert "waits for 2 free GPUs" in pending.reason
                env = json.loads((tmp_path / "env").read_text())
                assert env["CUDA_VISIBLE_DEVICES"] == ",".join(map(str, ready.gpus))
                await fleet.backend.stop(ready.id, "a test")
                await fleet.until_ready(pending.id)
        finally:
            nodes.remove(node)

    run(test)


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
