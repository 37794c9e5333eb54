"""`kilocard up` with emulated engines that take a second to load: replicas come and go under streaming load."""

from __future__ import annotations

import asyncio
import time
from copy import deepcopy
from pathlib import Path
from typing import Any

from benchmarks.scale_events import CLUSTER, FEW, MANY, Cluster, Load, Result, cluster_up, scale, until


def cluster(**pool: Any) -> dict[str, Any]:
    spec = deepcopy(CLUSTER)
    spec["pools"]["p"] |= pool
    return spec


async def seen(cluster: Cluster, what: str, seconds: float, **wanted: Any) -> dict[str, Any]:
    """The first event of /scaling that says so."""
    end = time.monotonic() + seconds
    while True:
        for event in (await cluster.page("/scaling"))["events"]:
            if event["kind"] == what and all(event[key] == value for key, value in wanted.items()):
                return dict(event)
        assert time.monotonic() < end, (what, await cluster.page("/scaling"))
        await asyncio.sleep(0.05)


def test_load_rises_and_a_replica_is_added_in_time_and_serves_at_once_then_one_drains_and_goes(tmp_path: Path) -> None:
    async def body() -> Result:
        result = Result()
        async with cluster_up(tmp_path, cluster(replicas={"min": 1, "max": 2}), result) as up:
            load = Load(up, result, long=1)
            load.clients(MANY)
            started = await seen(up, "started", 60, replica="p-1")
            assert "more than 1 for" in started["text"]
            [grown] = [entry for entry in (await up.pool())["journal"] if entry["reason"] == "above"]
            assert 1.0 <= grown["numbers"]["above_for_s"] <= 1.0 + 2.0  # it had to hold for 1 s

            await seen(up, "ready", 60, replica="p-1")
            end = time.monotonic() + 5.0
            while not (await up.replicas())["p-1"]["in_flight"]:
                assert time.monotonic() < end, "it is ready and gets nothing"
                await asyncio.sleep(0.02)

            load.clients(FEW)
            assert await until(up, 1, 60)
            page = await up.page("/scaling")
            assert {"draining", "gone"} <= {event["kind"] for event in page["events"]}
            assert page["pools"][0]["started"] == page["pools"][0]["drained"] == 1
            assert not page["controller"]["errors"]
            await load.end()
        return result

    result = asyncio.run(body())
    assert result.answers > 20
    assert not result.failures and not result.left


def test_as_04_no_stream_is_cut_by_any_of_several_changes(tmp_path: Path) -> None:
    result = asyncio.run(scale(6, tmp_path))
    assert not result.problems(6)


def test_from_zero_to_one_and_back_and_the_first_request_waits_instead_of_failing(tmp_path: Path) -> None:
    async def body() -> Result:
        result = Result()
        spec = cluster(replicas={"min": 0, "max": 1})
        spec["pools"]["p"]["scaling"]["idle"] = "2s"
        async with cluster_up(tmp_path, spec, result, at_least=0) as up:
            assert (await up.get("/readyz")).status == 200  # it would serve: somebody need only ask
            assert b'"id":"m"' in (await up.get("/v1/models")).body
            assert not await up.replicas()
            began = time.monotonic()
            assert await up.ask() == ""
            assert time.monotonic() - began > 1.0  # it has waited for a replica that loads for a second
            assert await up.ask() == ""
            assert await until(up, 0, 60)
            assert (await up.pool())["reason"] in ("idle", "steady")
            assert await up.ask() == ""
        return result

    result = asyncio.run(body())
    assert not result.left


def test_as_11_a_reload_changes_bounds_and_only_the_controller_changes_the_count(tmp_path: Path) -> None:
    async def body() -> Result:
        result = Result()
        spec = cluster(replicas={"min": 2, "max": 3})
        async with cluster_up(tmp_path, spec, result) as up:
            assert await until(up, 2, 60)
            up.write(cluster(replicas={"min": 3, "max": 3}))
            assert await until(up, 3, 60)
            up.write(cluster(replicas={"min": 1, "max": 2}))  # the most, not the least: 3 are two too many for nobody
            await seen(up, "draining", 60)
            first = (await up.pool())["drained"]
            assert first == 1
            assert await until(up, 1, 20)  # nobody asks, so the second goes too, a second of idleness later
            pool = await up.pool()
            assert (pool["started"], pool["drained"]) == (1, 2)
        return result

    result = asyncio.run(body())
    assert not result.left
