"""The local backend follows another cluster file; real processes (a fake engine)."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from test_local_backend import Bench, run, running

from fake_engine import one_pool
from kilocard.backends.base import ReplicaState
from kilocard.core.errors import BackendError, GpuShortage
from kilocard.spec.model import ClusterSpec, GpuSpec, ReplicaRange

pytestmark = pytest.mark.skipif(os.name != "posix", reason="processes and signals are POSIX")


def with_pools(spec: ClusterSpec, **pools: int) -> ClusterSpec:
    """The spec's only pool under these names, with so many replicas."""
    (pool,) = spec.pools.values()
    made = {name: replace(pool, name=name, replicas=ReplicaRange(count, count)) for name, count in pools.items()}
    (model,) = spec.models.values()
    return replace(spec, pools=made, models={model.name: replace(model, pools=dict.fromkeys(made, 1))})


def alive(bench: Bench) -> list[str]:
    return [status.id for status in bench.backend.replicas() if status.state is ReplicaState.READY]


def test_pools_come_and_go_and_counts_follow(tmp_path: Path) -> None:
    async def test() -> None:
        spec = with_pools(one_pool(), p=1)
        async with running(spec, tmp_path) as bench:
            await bench.until_state(ReplicaState.READY)
            order = []
            await bench.backend.change(with_pools(spec, p=2, q=1), lambda: order.append("told"))
            assert order == ["told"]
            await bench.until(lambda: alive(bench) == ["p-0", "p-1", "q-0"])
            await bench.backend.change(with_pools(spec, q=1), lambda: None)
            for replica in ("p-0", "p-1"):
                await bench.until_state(ReplicaState.DRAINING, replica)
                bench.backend.idle(replica)
                await bench.until_state(ReplicaState.STOPPED, replica)
            assert alive(bench) == ["q-0"]
            with pytest.raises(BackendError, match="no pool p"):
                await bench.backend.start("p")
            await bench.backend.change(with_pools(spec, p=1, q=1), lambda: None)
            await bench.until(lambda: alive(bench) == ["p-0", "q-0"])

    run(test)


def test_the_same_file_again_starts_and_stops_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        spec = with_pools(one_pool(), p=1)
        async with running(spec, tmp_path) as bench:
            await bench.until_state(ReplicaState.READY)
            await bench.backend.start("p")  # somebody scaled it by hand
            await bench.until(lambda: alive(bench) == ["p-0", "p-1"])
            await bench.backend.change(spec, lambda: None)
            assert alive(bench) == ["p-0", "p-1"]

    run(test)


def test_what_cannot_start_changes_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        spec = with_pools(one_pool(), p=1)
        async with running(spec, tmp_path) as bench:
            await bench.until_state(ReplicaState.READY)
            greedy = with_pools(spec, p=2, q=1)
            pools = {**greedy.pools, "q": replace(greedy.pools["q"], gpus=GpuSpec("H100", 8))}
            told: list[str] = []
            with pytest.raises(GpuShortage):
                await bench.backend.change(replace(greedy, pools=pools), lambda: told.append("told"))
            assert not told and alive(bench) == ["p-0"]
            await bench.backend.change(with_pools(spec, p=2), lambda: None)
            await bench.until(lambda: alive(bench) == ["p-0", "p-1"])

    run(test)
