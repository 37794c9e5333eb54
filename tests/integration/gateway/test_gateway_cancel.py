"""Clients that leave: the engine is told at once, whatever the phase, and nothing stays behind."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest
from stub_engine import (
    PATIENT,
    ROLE,
    STREAM_HEAD,
    Asked,
    Wire,
    answer,
    chunk,
    delta,
    gateway_over,
    hang,
    run,
    until,
    within,
)

from kilocard.spec.model import HoldSpec, ModelSpec


def request(stream: bool) -> bytes:
    body = json.dumps({"model": "m", "stream": stream}).encode()
    return b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body) + body


async def head_only(asked: Asked, wire: Wire) -> None:
    await wire.send(STREAM_HEAD)
    await asked.gone.wait()


async def streams(asked: Asked, wire: Wire) -> None:
    await wire.send(STREAM_HEAD + chunk(ROLE) + chunk(delta("x")))
    await asked.gone.wait()


@pytest.mark.parametrize("how", ["close", "reset", "half_close"])
@pytest.mark.parametrize("phase", ["not_streaming", "before_the_head", "before_first_token", "in_the_stream"])
def test_1_the_engine_sees_the_client_go_within_a_second(phase: str, how: str) -> None:
    """production-stack#634/#867/#1040, gw-07, gw-08."""

    async def story() -> None:
        script = {"before_first_token": head_only, "in_the_stream": streams}.get(phase, hang)
        async with gateway_over(script, timeouts=PATIENT) as setup:
            reader, writer = await setup.raw()
            writer.write(request(stream=phase != "not_streaming"))
            await until(lambda: setup.engines[0].asked)
            if phase == "in_the_stream":
                await reader.readuntil(b"\n\n\r\n")
            elif phase == "before_first_token":
                await reader.readuntil(b"\r\n\r\n")
            if how == "close":
                writer.close()
            elif how == "reset":
                writer.transport.abort()
            else:
                writer.write_eof()
            async with within(1.0):
                await setup.engines[0].asked[0].gone.wait()
            await setup.settles()
            page = setup.gateway.plane.telemetry.registry.render()
            assert b'outcome="client_gone"} 1' in page
            replica = setup.gateway.plane.dispatcher.snapshot(setup.gateway.plane.clock())["replicas"][0]
            assert replica["state"] == "ready", "a client that leaves is no fault of the replica"
            writer.close()

    run(story())


@pytest.mark.parametrize("requests", [2, 17, 60])
def test_1_behind_many_more_requests_the_clients_end_is_seen(requests: int) -> None:
    """Nothing is read of a connection on which too many requests wait already; its end is behind what is not read."""

    async def story() -> None:
        async with gateway_over(hang, timeouts=replace(PATIENT, first_token=40.0, total=50.0)) as setup:
            _, writer = await setup.raw()
            writer.write(request(stream=False) * requests)
            await until(lambda: setup.engines[0].asked)
            writer.close()
            async with within(5.0):  # it is looked for once a second
                await setup.engines[0].asked[0].gone.wait()
            await setup.settles()
            assert len(setup.engines[0].asked) == 1, "what waited behind it is asked of nobody"

    run(story())


def test_1_a_held_request_leaves_the_queue_without_ever_being_sent() -> None:
    """gw-08: nobody listened for the end of a client that was still waiting its turn."""

    async def story() -> None:
        model = ModelSpec("m", {"p": 1}, hold=HoldSpec(10, 10.0))
        async with gateway_over(hang, model=model, timeouts=PATIENT, max_in_flight=1) as setup:
            first = await setup.raw()
            first[1].write(request(True))
            await until(lambda: setup.engines[0].asked)
            second = await setup.raw()
            second[1].write(request(True))
            dispatcher = setup.gateway.plane.dispatcher
            await until(lambda: dispatcher.held == 1)
            second[1].close()
            await until(lambda: not dispatcher.held, 1.0)
            assert len(setup.engines[0].asked) == 1
            first[1].close()

    run(story())


def test_a_client_that_leaves_while_we_connect() -> None:
    async def story() -> None:
        async with gateway_over(answer) as setup:
            for _ in range(20):
                _, writer = await setup.raw()
                writer.write(request(False))
                await asyncio.sleep(0)
                writer.transport.abort()
            await setup.settles()

    run(story())


def test_14_15_many_cancels_leave_every_counter_at_zero() -> None:
    """production-stack#1072: in-flight rose from 121 to 264 in six hours. Here 300 requests end in every way."""

    async def moody(asked: Asked, wire: Wire) -> None:
        kind = asked.number % 6
        if kind == 0:
            wire.reset()
        elif kind == 1:
            await asyncio.sleep(0.02)
            await answer(asked, wire)
        elif kind == 2:
            await wire.send(STREAM_HEAD + chunk(ROLE) + chunk(delta("x")))
            wire.reset()
        elif kind == 3:
            await asked.gone.wait()
        else:
            await answer(asked, wire)

    async def one(setup: object, number: int) -> None:
        reader, writer = await setup.raw()  # type: ignore[attr-defined]
        writer.write(request(stream=number % 2 == 0))
        try:
            async with asyncio.timeout(0.01 * (number % 20)):
                await reader.read(100)
        except TimeoutError:
            pass
        if number % 3:
            writer.transport.abort()
        else:
            writer.close()

    async def story() -> None:
        async with gateway_over(moody, moody, moody) as setup:
            for batch in range(6):
                await asyncio.gather(*(one(setup, batch * 50 + n) for n in range(50)))
            await setup.settles()
            plane = setup.gateway.plane
            assert all(count == 0 for count in setup.in_flight().values())
            assert plane.buffered == 0 and not plane.exchanges
            await until(lambda: not plane.connections)

    run(story())
