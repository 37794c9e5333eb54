"""A replica of several processes on several nodes; and nodes that are not the same."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from fleet import Fleet, all_gone, family_of, run, running
from part_engine import PartEngine, VersionedEngine

from fake_engine import __file__ as server
from fake_engine import is_alive, one_pool
from kilocard.core.errors import BackendError
from kilocard.spec.model import GpuSpec


def test_a_replica_over_two_nodes_lives_and_dies_as_one(nodes: Any, tmp_path: Path) -> None:
    """Each node has one GPU, so two pipeline stages take two nodes."""
    spec = one_pool(gpus=GpuSpec(tensor=1, pipeline=2), family=str(tmp_path / "family"))

    def pids() -> list[int]:
        """Of both parts; none while one of them has not written its own."""
        try:
            return [*family_of(tmp_path / "family-0"), *family_of(tmp_path / "family-1")]
        except (OSError, ValueError):
            return []

    async def next_pids(fleet: Fleet, founds: int, before: list[int]) -> list[int]:
        await fleet.until(lambda: fleet.kinds().count("Found") == founds)
        await fleet.until(lambda: len(pids()) == 6 and set(pids()).isdisjoint(before))
        return pids()

    async def test() -> None:
        mine = [nodes.add(cpus=1, gpus=1), nodes.add(cpus=1, gpus=1)]
        try:
            async with running(nodes, spec, engine=PartEngine()) as fleet:
                first = await next_pids(fleet, 1, [])
                assert all(map(is_alive, first))
                os.kill(first[3], signal.SIGKILL)  # the engine of the second part
                second = await next_pids(fleet, 2, first)
                assert fleet.kinds() == ["Found", "Lost", "Found"]
                assert "part 1 on 127.0.0" in fleet.news[1].reason
                await all_gone(first)
                mine.append(nodes.add(cpus=1, gpus=1))
                nodes.kill(mine[1])
                third = await next_pids(fleet, 3, second)
                assert fleet.kinds() == ["Found", "Lost", "Found", "Lost", "Found"]
                await all_gone(second)
            await all_gone(third)
        finally:
            for one in mine:
                nodes.remove(one)

    run(test)


def make_engine(folder: Path, version: str) -> dict[str, str]:
    """A virtual environment with the fake engine of this version; the environment of a node that has it on PATH."""
    (folder / "bin").mkdir(parents=True)
    (folder / "lib/python3.11/site-packages" / f"fakeengine-{version}.dist-info").mkdir(parents=True)
    (folder / "bin/python3").symlink_to(sys.executable)
    program = folder / "bin/fake-engine"
    program.write_text(f"#!{folder}/bin/python3\nimport runpy\nrunpy.run_path({server!r}, run_name='__main__')\n")
    program.chmod(0o755)
    return {"PATH": f"{folder}/bin:{os.environ['PATH']}"}


def test_nothing_starts_where_one_node_has_another_engine(nodes: Any, tmp_path: Path) -> None:
    async def test() -> None:
        pair = [
            nodes.add(cpus=1, env_vars=make_engine(tmp_path / "a", "1.0"), labels={"kind": "test"}),
            nodes.add(cpus=1, env_vars=make_engine(tmp_path / "b", "1.1"), labels={"kind": "test"}),
        ]
        spec = one_pool()
        try:
            fleet = Fleet(nodes, spec, engine=VersionedEngine())
            with pytest.raises(BackendError, match=r"the nodes differ.*fakeengine of pool p: \S+ on .*, but .* on vm"):
                await fleet.backend.open()
            assert fleet.backend.replicas() == ()
            nodes.remove(pair[1])
            async with running(nodes, spec, engine=VersionedEngine()) as same:
                await same.until_ready("p-0")
                pair[1] = nodes.add(cpus=1, env_vars=make_engine(tmp_path / "c", "1.1"))
                await same.backend.start("p")
                await same.until(lambda: "fakeengine of pool p: 1.0 on" in same.backend.describe("p-1").reason)
                assert "but 1.1 on" in same.backend.describe("p-1").reason
                assert same.kinds("p-1") == []
        finally:
            for one in pair:
                nodes.remove(one)

    run(test)


def test_no_cluster_is_an_error_that_says_what_to_do(nodes: Any) -> None:
    async def test() -> None:
        fleet = Fleet(type("Nowhere", (), {"address": "127.0.0.1:9"}), one_pool())
        with pytest.raises(BackendError, match=r"no Ray cluster at 127.0.0.1:9.*ray start --head"):
            await fleet.backend.open()

    run(test)
