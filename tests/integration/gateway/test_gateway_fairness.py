"""Waiting in the gateway through real sockets: who goes first, until when, and where nobody else may go."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest
from stub_engine import (
    FAST,
    HOURS,
    Asked,
    HandClock,
    Setup,
    StubEngine,
    Wire,
    answer,
    answers_when,
    gateway_over,
    run,
    until,
    whole,
    within,
)

from kilocard.core.replica import Endpoint, Found
from kilocard.gateway.server import Gateway
from kilocard.net.client import Response, fetch
from kilocard.spec.model import ClusterSpec, GatewaySpec, HoldSpec, ModelSpec, PoolSpec, TenantSpec


def tenant(name: str, **more: Any) -> TenantSpec:
    return TenantSpec(name, keys=("sha256:" + hashlib.sha256(name.encode()).hexdigest(),), **more)


def key(name: str) -> list[tuple[str, str]]:
    return [("authorization", f"Bearer {name}")]


def code(response: Response) -> tuple[int, str]:
    return response.status, json.loads(response.body)["error"]["code"]


class OneByOne:
    """An engine that answers when it is told to, and keeps who asked in order."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self._turns = asyncio.Semaphore(0)

    async def __call__(self, asked: Asked, wire: Wire) -> None:
        self.order.append(asked.json["user"])
        await self._turns.acquire()
        await wire.send(whole())

    def go(self, turns: int = 1) -> None:
        for _ in range(turns):
            self._turns.release()


async def ask(setup: Setup, who: str, label: str, **headers: str) -> Response:
    extra = [(name.replace("_", "-"), value) for name, value in headers.items()]
    return await setup.post({"model": "m", "user": label, "max_tokens": 10}, headers=[*key(who), *extra])


async def in_line(setup: Setup, requests: list[tuple[str, str]]) -> list[asyncio.Task[Response]]:
    """Each is held before the next one is sent."""
    tasks = []
    for who, label in requests:
        held = setup.gateway.plane.dispatcher.held
        tasks.append(asyncio.ensure_future(ask(setup, who, label)))
        await until(lambda held=held: setup.gateway.plane.dispatcher.held > held)
    return tasks


def test_high_before_normal_before_low_and_turn_by_turn_within() -> None:
    async def story() -> None:
        engine = OneByOne()
        tenants = {
            "flood": tenant("flood"),
            "quiet": tenant("quiet"),
            "urgent": tenant("urgent", priority="high"),
            "nightly": tenant("nightly", priority="low"),
        }
        model = ModelSpec("m", {"p": 1}, hold=HoldSpec(100, 60.0))
        async with gateway_over(engine, model=model, tenants=tenants, timeouts=HOURS, max_in_flight=1) as setup:
            first = asyncio.ensure_future(ask(setup, "flood", "first"))
            await until(lambda: engine.order)
            names = [("nightly", "n1"), *(("flood", f"f{i}") for i in range(4)), ("quiet", "q1"), ("urgent", "u1")]
            tasks = await in_line(setup, names)

            url = f"http://127.0.0.1:{setup.gateway.admin_port}"
            (model,) = json.loads((await fetch(url + "/state", timeout=20)).body)["models"]
            assert model["held_by_tenant"] == {"flood": 4, "nightly": 1, "quiet": 1, "urgent": 1}
            assert model["held_by_priority"] == {"high": 1, "normal": 5, "low": 1}
            page = (await fetch(url + "/metrics", timeout=20)).body.decode()
            assert 'kilocard_held_requests{model="m",priority="normal"} 5' in page

            engine.go(8)
            assert {task.result().status for task in (await asyncio.wait([first, *tasks]))[0]} == {200}
            assert engine.order == ["first", "u1", "f0", "q1", "f1", "f2", "f3", "n1"]
            page = (await fetch(url + "/metrics", timeout=20)).body.decode()
            assert 'kilocard_hold_time_seconds_count{model="m",priority="normal"} 5' in page
            assert 'kilocard_hold_time_seconds_count{model="m",priority="low"} 1' in page

    run(story())


def test_who_is_refused_at_once_has_waited_for_nothing() -> None:
    """Else a full queue would pull down the times of those in it: the p95 of a minute's wait would be 0 s."""

    async def story() -> None:
        go_on = asyncio.Event()
        model = ModelSpec("m", {"p": 1}, hold=HoldSpec(1, 60.0))
        async with gateway_over(answers_when(go_on), model=model, timeouts=HOURS, max_in_flight=1) as setup:
            first = asyncio.ensure_future(setup.chat())
            await until(lambda: setup.engines[0].asked)
            held = asyncio.ensure_future(setup.chat())
            await until(lambda: setup.gateway.plane.dispatcher.held)
            assert (await setup.chat()).status == 503
            assert (await setup.chat(model="nobody's")).status == 404
            go_on.set()
            assert (await first).status == (await held).status == 200
            page = setup.gateway.plane.telemetry.registry.render().decode()
            assert 'kilocard_hold_time_seconds_count{model="m",priority="normal"} 1' in page
            assert 'kilocard_hold_time_seconds_count{model="other",priority="normal"} 0' in page

    run(story())


def test_a_clients_deadline_ends_its_wait_and_nothing_is_sent() -> None:
    async def story() -> None:
        engine = OneByOne()
        model = ModelSpec("m", {"p": 1}, hold=HoldSpec(100, 60.0))
        tenants = {"a": tenant("a")}
        async with gateway_over(engine, model=model, tenants=tenants, timeouts=HOURS, max_in_flight=1) as setup:
            first = asyncio.ensure_future(ask(setup, "a", "first"))
            await until(lambda: engine.order)
            async with within(1.5):
                refused = await ask(setup, "a", "late", X_Kilocard_Timeout="0.2")
            assert code(refused) == (503, "deadline_exceeded")
            assert refused.headers["retry-after"]
            engine.go(2)
            assert (await first).status == 200
            assert (await ask(setup, "a", "second", x_kilocard_timeout="50")).status == 200
            assert engine.order == ["first", "second"]
            assert "x-kilocard-timeout" not in setup.engines[0].asked[-1].headers

    run(story())


def test_a_clients_deadline_ends_an_answer_that_takes_longer() -> None:
    async def story() -> None:
        engine = OneByOne()
        async with gateway_over(engine, timeouts=HOURS) as setup:
            clock = HandClock(setup)
            late = asyncio.ensure_future(
                setup.post({"model": "m", "user": "x"}, headers=[("x-kilocard-timeout", "0.2")])
            )
            await until(lambda: engine.order)
            await clock.forward(0.1)
            assert not late.done()
            await clock.forward(0.2)
            assert code(await late) == (504, "total_timeout")
            await until(lambda: setup.engines[0].asked[0].gone.is_set(), 2.0)

    run(story())


@pytest.mark.parametrize("value", ["0", "-1", "soon", "1e9", "", "nan", "1 s"])
def test_a_deadline_that_is_none(value: str) -> None:
    async def story() -> None:
        async with gateway_over(answer) as setup:
            response = await setup.post({"model": "m"}, headers=[("x-kilocard-timeout", value)])
            assert code(response) == (400, "invalid_timeout")
            assert setup.engines[0].asked == []

    run(story())


def test_a_client_that_leaves_while_it_waits_leaves_the_queue_at_once() -> None:
    async def story() -> None:
        engine = OneByOne()
        async with gateway_over(engine, timeouts=HOURS, max_in_flight=1) as setup:
            first = asyncio.ensure_future(setup.post({"model": "m", "user": "first"}))
            await until(lambda: engine.order)
            _, writer = await setup.raw()
            body = b'{"model":"m","user":"gone"}'
            writer.write(
                b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body) + body
            )
            dispatcher = setup.gateway.plane.dispatcher
            await until(lambda: dispatcher.held == 1)
            writer.close()
            await until(lambda: dispatcher.held == 0, 1.0)
            engine.go(1)
            assert (await first).status == 200
            assert engine.order == ["first"]

    run(story())


# --- exclusive pools


@contextlib.asynccontextmanager
async def two_pools() -> AsyncIterator[Setup]:
    """`m` is everybody's and the owner's, each in a pool of its own; `secret` is the owner's alone."""
    engines = {"open": StubEngine(answer), "own": StubEngine(answer)}
    for engine in engines.values():
        await engine.start()
    models = {
        "m": ModelSpec("m", {"open": 1, "own": 1}, hold=HoldSpec(100, 2.0)),
        "secret": ModelSpec("secret", {"own": 1}),
    }
    pools = {
        name: PoolSpec(name, "vllm", endpoints=(engine.url,), tenants=("owner",) if name == "own" else ())
        for name, engine in engines.items()
    }
    spec = ClusterSpec(
        gateway=GatewaySpec(listen="127.0.0.1:0", admin="127.0.0.1:0", timeouts=FAST, drain=2.0),
        models=models,
        pools=pools,
        tenants={"owner": tenant("owner"), "guest": tenant("guest")},
    )
    gateway = Gateway(spec, rng=random.Random(1))
    await gateway.start()
    for name, engine in engines.items():
        gateway.apply(Found(Endpoint(f"{name}/0", name, engine.url)))
    try:
        yield Setup(gateway, list(engines.values()))
    finally:
        await gateway.stop()
        for engine in engines.values():
            await engine.stop()


def test_an_exclusive_pool_gets_its_owners_requests_and_no_others() -> None:
    async def story() -> None:
        async with two_pools() as setup:
            for _ in range(10):
                for who in ("guest", "owner"):
                    response = await setup.post({"model": "m", "user": who}, headers=key(who))
                    assert response.status == 200
            shared, own = ([asked.json["user"] for asked in engine.asked] for engine in setup.engines)
            assert (shared, own) == (["guest"] * 10, ["owner"] * 10)

    run(story())


def test_a_model_that_belongs_to_others_is_neither_listed_nor_served() -> None:
    async def story() -> None:
        async with two_pools() as setup:
            for who, names in (("owner", ["m", "secret"]), ("guest", ["m"])):
                listed = await fetch(setup.url + "/v1/models", headers=key(who), timeout=20)
                assert [model["id"] for model in json.loads(listed.body)["data"]] == names
            refused = await setup.post({"model": "secret"}, headers=key("guest"))
            assert code(refused) == (403, "model_not_allowed")
            assert (await fetch(setup.url + "/v1/models/secret", headers=key("guest"), timeout=20)).status == 404
            assert (await setup.post({"model": "secret"}, headers=key("owner"))).status == 200

    run(story())
