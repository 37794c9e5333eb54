"""GET /signals on the admin listener: of one gateway, and of several workers added up."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import msgspec
from stub_engine import answer, gateway_over, run
from worker_processes import workers_over

from kilocard.core.reading import GatewayReading
from kilocard.core.signals import Phase, PoolSignals
from kilocard.net.client import fetch


async def signals(admin_port: int) -> GatewayReading:
    page = await fetch(f"http://127.0.0.1:{admin_port}/signals", timeout=5)
    assert page.status == 200
    return msgspec.json.decode(page.body, type=GatewayReading)


def only(reading: GatewayReading) -> PoolSignals:
    [pool] = reading.pools
    return pool


def test_what_one_gateway_knows() -> None:
    async def body() -> None:
        async with gateway_over(answer) as setup:
            before = only(await signals(setup.gateway.admin_port))
            for _ in range(3):
                assert (await setup.chat()).status == 200
            reading = await signals(setup.gateway.admin_port)
            after = only(reading)
            assert (after.arrived - before.arrived, after.finished, after.held, after.in_flight) == (3, 3, 0, 0)
            assert after.output_tokens == 3
            assert after.sources == before.sources and len(after.sources) == 1
            [replica] = reading.replicas
            assert (replica.phase, replica.in_flight) == (Phase.READY, 0)

    run(body())


def test_workers_are_added_up_and_name_themselves(tmp_path: Path) -> None:
    async def body() -> None:
        async with workers_over(tmp_path, answer, answer) as workers:
            answers = await asyncio.gather(*[workers.chat() for _ in range(30)])
            assert {each.status for each in answers} == {200}
            reading = await signals(workers.admin_port)
            pool = only(reading)
            assert (pool.arrived, pool.finished) == (30, 30)
            assert len(set(pool.sources)) == 2
            assert len(reading.replicas) == 2
            assert json.loads((await workers.get("/state")).body)["gateway"]["held"] == 0

    run(body())
