"""Controllers come and go; replicas stay, or end with them, as was asked."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fleet import Fleet, all_gone, family_of, run, running

from fake_engine import is_alive, one_pool
from kilocard.backends.base import ReplicaState as S
from kilocard.core.errors import EngineError
from kilocard.spec.model import ClusterSpec, ReplicaRange

TESTS = Path(__file__).parent.parent


def test_a_new_controller_finds_what_runs(nodes: Any, node: Any, tmp_path: Path) -> None:
    family = tmp_path / "family"
    spec = one_pool(family=str(family))

    async def test() -> None:
        first = Fleet(nodes, spec)
        await first.backend.open()
        await first.until_ready("p-0")
        url = first.backend.describe("p-0").url
        pids = family_of(family)
        await first.backend.let_go()
        assert all(map(is_alive, pids))
        async with running(nodes, spec) as second:
            await second.until_ready("p-0")
            assert second.kinds() == ["Found"]
            assert second.backend.describe("p-0").url == url
            assert second.backend.describe("p-0").restarts == 0
            assert family_of(family) == pids, "the same processes"
            assert [status.id for status in second.backend.replicas()] == ["p-0"], "no second one was started"
            assert await second.backend.start("p") == "p-1"
            await second.until_ready("p-1")
        await all_gone(pids)

    run(test)


def test_a_drain_goes_on_under_the_next_controller(nodes: Any, node: Any) -> None:
    async def test() -> None:
        first = Fleet(nodes, one_pool())
        await first.backend.open()
        await first.until_ready("p-0")
        draining = asyncio.create_task(first.backend.drain("p-0", "a new version"))
        await first.until(lambda: first.kinds() == ["Found", "Leaving"])
        await first.backend.let_go()
        await draining
        async with running(nodes, one_pool()) as second:
            assert second.states() == {"p-0": S.DRAINING, "p-1": S.PENDING}, "what drains does not count"
            assert second.kinds() == ["Found", "Leaving"], "the gateway must know where the last requests run"
            second.backend.idle("p-0")
            await second.until(lambda: second.states()["p-0"] is S.STOPPED)
            assert second.kinds() == ["Found", "Leaving", "Lost"]

    run(test)


def test_replicas_of_a_pool_that_is_gone_from_the_file_are_drained(nodes: Any, node: Any, tmp_path: Path) -> None:
    family = tmp_path / "family"

    async def test() -> None:
        first = Fleet(nodes, one_pool(family=str(family), grace=0.2))
        await first.backend.open()
        await first.until_ready("p-0")
        await first.backend.let_go()
        async with running(nodes, ClusterSpec()) as second:
            await second.until(lambda: second.states() == {"p-0": S.STOPPED})
            assert second.news == []
        await all_gone(family_of(family))

    run(test)


def test_the_cluster_file_is_followed(nodes: Any, node: Any) -> None:
    """A new pool starts, one that is gone drains, a range is followed; arguments wait for a restart."""
    old = one_pool(grace=0.2)
    pool = old.pools["p"]
    more = {"p": replace(pool, replicas=ReplicaRange(2, 2), args={"load": 1}), "q": replace(pool, name="q")}

    async def test() -> None:
        async with running(nodes, old) as fleet:
            await fleet.until_ready("p-0")
            new = nodes.add(cpus=2)
            try:
                spec, waiting = fleet.backend.as_started(replace(old, pools=more))
                assert waiting == ["pools.p.args"]
                await fleet.backend.change(spec, lambda: None)
                await fleet.until_ready("p-0", "p-1", "q-0")
                bad = replace(pool, name="r", args={"impossible": True})
                with pytest.raises(EngineError):
                    await fleet.backend.change(replace(spec, pools={"r": bad}), lambda: None)
                assert fleet.states()["q-0"] is S.READY, "nothing was changed"
                await fleet.backend.change(replace(spec, pools={"p": spec.pools["p"]}), lambda: None)
                await fleet.until(lambda: fleet.states()["q-0"] is S.STOPPED)
                assert fleet.states()["p-1"] is S.READY
            finally:
                nodes.remove(new)

    run(test)


def test_two_clusters_on_one_ray_do_not_see_each_other(nodes: Any, node: Any) -> None:
    async def test() -> None:
        first = Fleet(nodes, one_pool(), namespace="one")
        await first.backend.open()
        await first.until_ready("p-0")
        await first.backend.let_go()
        async with running(nodes, one_pool(replicas=0), namespace="two") as second:
            assert second.states() == {}
        async with running(nodes, one_pool(replicas=0), namespace="one") as third:
            assert list(third.states()) == ["p-0"]

    run(test)


@pytest.mark.parametrize("detached", [True, False])
def test_a_sigkill_of_the_controller(nodes: Any, node: Any, tmp_path: Path, detached: bool) -> None:
    """Detached replicas serve on and are found again; others are gone, with all that their engines started."""
    family = tmp_path / "family"
    controller = textwrap.dedent(f"""
        import asyncio
        from fake_engine import FakeEngine, one_pool
        from kilocard.backends.ray.backend import RayBackend

        async def main():
            backend = RayBackend(one_pool(family={str(family)!r}), lambda change: print(change, flush=True),
                                 lambda name: FakeEngine(), address={nodes.address!r}, detached={detached})
            await backend.open()
            await asyncio.sleep(60)

        asyncio.run(main())
    """)
    process = subprocess.Popen([sys.executable, "-c", controller], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("Found")
        pids = family_of(family)
        assert all(map(is_alive, pids))
    finally:
        process.kill()
        process.wait()
        process.stdout.close()

    async def afterwards() -> None:
        if not detached:
            await all_gone(pids, 15)
        async with running(nodes, replace(one_pool(replicas=0))) as fleet:
            if detached:
                await fleet.until_ready("p-0")
                assert family_of(family) == pids
            else:
                assert fleet.states() == {}
        await all_gone(pids)

    time.sleep(0.5)  # what should die would
    run(afterwards)
