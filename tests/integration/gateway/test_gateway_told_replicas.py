"""PUT /replicas on the admin address: a controller in another process says which replicas there are."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from stub_engine import Setup, StubEngine, answer, run

from kilocard.core.roll import Roll, RollEntry
from kilocard.gateway.server import Gateway
from kilocard.net.client import Response, fetch
from kilocard.spec.model import ClusterSpec, GatewaySpec, HoldSpec, ModelSpec, PoolSpec, ReplicaRange
from kilocard.spec.scaling import ScalingSpec


@contextlib.asynccontextmanager
async def gateway(least: int) -> AsyncIterator[tuple[Setup, str]]:
    """Over a pool of which nobody has told yet; an engine, and its URL."""
    engine = StubEngine(answer)
    await engine.start()
    spec = ClusterSpec(
        gateway=GatewaySpec(listen="127.0.0.1:0", admin="127.0.0.1:0", drain=1.0),
        models={"m": ModelSpec("m", {"p": 1}, hold=HoldSpec(100, 5.0))},
        pools={"p": PoolSpec("p", "vllm", replicas=ReplicaRange(least, 2), scaling=ScalingSpec())},
    )
    one = Gateway(spec)
    await one.start()
    try:
        yield Setup(one, [engine]), engine.url
    finally:
        await one.stop()
        await engine.stop()


async def admin(setup: Setup, path: str, roll: Any = None, **more: Any) -> Response:
    url = f"http://127.0.0.1:{setup.gateway.admin_port}{path}"
    if roll is None:
        return await fetch(url, timeout=5, **more)
    return await fetch(url, method="PUT", body=msgspec.json.encode(roll), timeout=5, **more)


def test_a_replica_comes_serves_and_goes_as_it_is_told() -> None:
    async def body() -> None:
        async with gateway(least=1) as (setup, url):
            assert (await admin(setup, "/readyz")).status == 503
            waiting = asyncio.ensure_future(setup.chat())  # held, since nobody has told of a replica
            starting = RollEntry("p-0", "p", "starting", None)
            assert (await admin(setup, "/replicas", Roll((starting,), {"pools": []}))).status == 200
            state = json.loads((await admin(setup, "/state")).body)
            assert [(row["id"], row["state"]) for row in state["replicas"]] == [("p-0", "starting")]
            nobody = RollEntry("p-0", "p", "ready", "http://127.0.0.1:9", serves=True, restarts=3)
            await admin(setup, "/replicas", Roll((nobody,), {"pools": []}))
            (row,) = json.loads((await admin(setup, "/state")).body)["replicas"]
            assert (row["state"], row["restarts"]) == ("not_ready", 3), "what the controller knows stays"

            await admin(setup, "/replicas", Roll((RollEntry("p-0", "p", "ready", url, serves=True),), {"pools": []}))
            assert (await waiting).status == 200
            assert (await admin(setup, "/readyz")).status == 200

            await admin(setup, "/replicas", Roll((RollEntry("p-0", "p", "draining", url, leaves=True),)))
            signals = json.loads((await admin(setup, "/signals")).body)
            assert [(row["phase"], row["in_flight"]) for row in signals["replicas"]] == [("draining", 0)]
            await admin(setup, "/replicas", Roll())
            assert json.loads((await admin(setup, "/state")).body)["replicas"] == []

    run(body())


def test_a_pool_that_may_sleep_is_ready_without_any_replica() -> None:
    async def body() -> None:
        async with gateway(least=0) as (setup, _):
            assert (await admin(setup, "/readyz")).status == 200
            assert json.loads((await fetch(f"{setup.url}/v1/models", timeout=5)).body)["data"][0]["id"] == "m"
            [pool] = json.loads((await admin(setup, "/state")).body)["pools"]
            assert pool["sleeps"] is True

    run(body())


def test_what_a_controller_has_decided_is_shown_here_once_it_has_told() -> None:
    async def body() -> None:
        async with gateway(least=1) as (setup, _):
            nobody = await admin(setup, "/scaling")
            assert (nobody.status, json.loads(nobody.body)["error"]["code"]) == (404, "no_controller")
            await admin(setup, "/replicas", Roll((), {"controller": {"leads": True}, "pools": []}))
            assert json.loads((await admin(setup, "/scaling")).body)["controller"] == {"leads": True}
            assert json.loads((await admin(setup, "/state")).body)["scaling"]["pools"] == []

    run(body())


def test_what_is_no_list_of_replicas_changes_nothing_and_browsers_may_not_tell() -> None:
    async def body() -> None:
        async with gateway(least=1) as (setup, url):
            there = Roll((RollEntry("p-0", "p", "ready", url, serves=True),))
            assert (await admin(setup, "/replicas", there, headers=[("origin", "http://evil.example")])).status == 403
            nowhere = Roll((*there.replicas, RollEntry("p-1", "p", "ready", "127.0.0.1:99999", serves=True)))
            for wrong in ([], {"replicas": [{"id": 3}]}, {"replicas": "all"}, nowhere):
                refused = await admin(setup, "/replicas", wrong)
                assert (refused.status, json.loads(refused.body)["error"]["code"]) == (400, "invalid_replicas")
            assert json.loads((await admin(setup, "/state")).body)["replicas"] == []

    run(body())
