"""Replicas that fail, hang, vanish or lie; herds; stops. Numbers name the items of docs/faults-of-others.md."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from stub_engine import (
    HOURS,
    JSON_ANSWER,
    ROLE,
    STREAM_HEAD,
    Asked,
    StubEngine,
    Wire,
    answer,
    answers_when,
    chunk,
    delta,
    die,
    error500,
    gateway_over,
    hang,
    run,
    until,
    whole,
    within,
)

from kilocard.core.errors import CapacityError
from kilocard.core.replica import Endpoint, Found, Leaving, Lost
from kilocard.gateway.replica_connections import ReplicaConnections
from kilocard.gateway.server import Gateway
from kilocard.net.client import fetch
from kilocard.scrape.discovery.configured import configured
from kilocard.spec.model import ClusterSpec, GatewaySpec, HoldSpec, ModelSpec, PoolSpec, Timeouts

#: whoever has to wait is not refused because the machine is slow
PATIENT_MODEL = ModelSpec("m", {"p": 1}, hold=HoldSpec(1000, 60.0))


async def slowly(asked: Asked, wire: Wire) -> None:
    await asyncio.sleep(0.3)
    await answer(asked, wire)


def test_32_a_connection_closed_just_as_it_is_reused_is_repeated_on_a_fresh_one() -> None:
    """kserve#5446, gw-10: uvicorn closes idle connections after 5 s; the race is not the replica's fault."""

    async def closes_on_second(asked: Asked, wire: Wire) -> None:
        if asked.number == 2:
            wire.reset()  # the request was read, not a byte answered
        else:
            await answer(asked, wire)

    async def story() -> None:
        async with gateway_over(closes_on_second) as setup:
            for _ in range(3):
                assert (await setup.chat()).status == 200
            replica = setup.gateway.plane.dispatcher.snapshot(setup.gateway.plane.clock())["replicas"][0]
            assert replica["state"] == "ready" and replica["failures"] == 0
            page = setup.gateway.plane.telemetry.registry.render()
            assert b'kilocard_retries_total{reason="stale_connection"} 1' in page

    run(story())


def test_a_gateway_out_of_descriptors_ejects_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    async def out_of_files(self: object, within: float) -> None:
        raise CapacityError("no more", code="no_descriptors")

    async def story() -> None:
        async with gateway_over(answer) as setup:
            with monkeypatch.context() as patched:
                patched.setattr(ReplicaConnections, "open", out_of_files)
                refused = [await setup.chat() for _ in range(5)]
            assert [one.status for one in refused] == [503] * 5
            assert all(b"no_descriptors" in one.body for one in refused)
            assert (await setup.chat()).status == 200
            replica = setup.gateway.plane.dispatcher.snapshot(setup.gateway.plane.clock())["replicas"][0]
            assert replica["state"] == "ready" and replica["failures"] == 0 and replica["in_flight"] == 0

    run(story())


def test_32_a_fresh_connection_that_is_reset_is_a_fault() -> None:
    async def story() -> None:
        async with gateway_over(die, answer) as setup:
            for _ in range(4):
                assert (await setup.chat()).status == 200
            assert setup.engines[0].accepted >= 1

    run(story())


def test_32_idle_connections_are_closed_before_the_engine_would() -> None:
    async def story() -> None:
        async with gateway_over(answer, gateway=GatewaySpec(scrape_interval=60)) as setup:
            await setup.chat()
            assert setup.engines[0].open_connections == 1
            await until(lambda: not setup.engines[0].open_connections, 6.0)
            assert (await setup.chat()).status == 200

    run(story())


@pytest.mark.parametrize("stream", [False, True])
def test_36_kill_one_of_three_under_load_and_lose_nothing_that_sent_no_content(stream: bool) -> None:
    """dynamo#8182, ray#65698: about 40 failures for each lost instance."""

    async def story() -> None:
        async with gateway_over(slowly, slowly, slowly, timeouts=HOURS, model=PATIENT_MODEL) as setup:
            load = [asyncio.ensure_future(setup.chat(stream=stream)) for _ in range(60)]
            await until(lambda: len(setup.engines[1].asked) >= 10)
            await setup.engines[1].stop()
            more = [asyncio.ensure_future(setup.chat(stream=stream)) for _ in range(60)]
            statuses = Counter(response.status for response in await asyncio.gather(*load, *more))
            assert statuses == {200: 120}

    run(story())


def test_lb01_a_fast_500_must_not_attract_traffic() -> None:
    """linkerd2#11669: a replica that fails in 1 ms looks least loaded."""

    async def story() -> None:
        async with gateway_over(error500, slowly, slowly, timeouts=HOURS, model=PATIENT_MODEL) as setup:
            for _ in range(5):
                responses = await asyncio.gather(*(setup.chat() for _ in range(20)))
                assert {response.status for response in responses} == {200}
            assert len(setup.engines[0].asked) < 30

    run(story())


def test_lb06_in_flight_counts_before_the_first_byte() -> None:
    """sglang#27547: 32 at once on 4 replicas whose heads are slow: 8 each."""

    all_here = asyncio.Event()
    late = answers_when(all_here)

    async def story() -> None:
        async with gateway_over(late, late, late, late, timeouts=HOURS) as setup:
            asking = asyncio.gather(*(setup.chat(stream=True) for _ in range(32)))
            await until(lambda: sum(len(engine.asked) for engine in setup.engines) == 32)
            all_here.set()
            assert {response.status for response in await asking} == {200}
            assert [len(engine.asked) for engine in setup.engines] == [8, 8, 8, 8]

    run(story())


def test_37_lying_health_is_found_out_by_requests() -> None:
    """vllm#16259: /health is 200 with dead workers; here health and model list are fine, every request fails."""

    async def story() -> None:
        async with gateway_over(error500, answer) as setup:
            for _ in range(10):
                responses = await asyncio.gather(*(setup.chat() for _ in range(10)))
                assert {response.status for response in responses} == {200}
            assert len(setup.engines[0].asked) < 20
            plane = setup.gateway.plane
            states = {
                replica["id"]: replica["state"] for replica in plane.dispatcher.snapshot(plane.clock())["replicas"]
            }
            assert states["p/0"] != "ready" and states["p/1"] == "ready"

    run(story())


def test_an_ejected_replica_comes_back() -> None:
    sick = True

    async def recovers(asked: Asked, wire: Wire) -> None:
        await (error500 if sick else answer)(asked, wire)

    async def story() -> None:
        nonlocal sick
        async with gateway_over(recovers, answer) as setup:
            for _ in range(15):
                await setup.chat()
            sick = False
            before = len(setup.engines[0].asked)
            async with within(30.0):
                while len(setup.engines[0].asked) < before + 3:
                    assert (await setup.chat()).status == 200
                    await asyncio.sleep(0.02)

    run(story())


def test_35_no_replica_for_a_moment_is_a_short_wait_not_an_error() -> None:
    """vllm-router#140: thousands of 503."""

    async def story() -> None:
        async with gateway_over(answer, model=PATIENT_MODEL) as setup:
            engine = setup.engines[0]
            setup.gateway.apply(Lost("p/0", "restarting"))
            waiting = [asyncio.ensure_future(setup.chat()) for _ in range(10)]
            await until(lambda: setup.gateway.plane.dispatcher.held == 10)
            await asyncio.sleep(0.3)
            assert not any(task.done() for task in waiting)
            setup.gateway.apply(Found(Endpoint("p/0", "p", engine.url)))
            assert {response.status for response in await asyncio.gather(*waiting)} == {200}

    run(story())


def test_35_and_an_error_with_a_reason_when_the_wait_is_over() -> None:
    async def story() -> None:
        model = ModelSpec("m", {"p": 1}, hold=HoldSpec(10, 0.4))
        async with gateway_over(answer, model=model) as setup:
            setup.gateway.apply(Lost("p/0", "gone"))
            start = time.monotonic()
            async with within(1.5):
                response = await setup.chat()
            assert response.status == 503 and time.monotonic() - start > 0.3
            assert json.loads(response.body)["error"]["code"] == "no_replica"
            assert "retry-after" in response.headers

    run(story())


def test_31_a_leaving_replica_gets_nothing_new_and_finishes_what_it_has() -> None:
    async def story() -> None:
        drained: list[str] = []
        go_on = asyncio.Event()
        async with gateway_over(answers_when(go_on), answer, timeouts=HOURS) as setup:
            setup.gateway.plane.on_drained = drained.append
            load = [asyncio.ensure_future(setup.chat()) for _ in range(2)]
            await until(lambda: setup.engines[0].asked)
            setup.gateway.apply(Leaving("p/0", "scale down"))
            for _ in range(10):
                assert (await setup.chat()).status == 200
            assert len(setup.engines[0].asked) == 1 and drained == []
            go_on.set()
            assert {response.status for response in await asyncio.gather(*load)} == {200}
            assert drained == ["p/0"]

    run(story())


def test_31_a_replica_that_moved_is_followed() -> None:
    async def story() -> None:
        async with gateway_over(answer) as setup:
            other = StubEngine(answer)
            await other.start()
            await setup.chat()
            setup.gateway.apply(Found(Endpoint("p/0", "p", other.url)))
            await setup.chat()
            assert len(other.asked) == 1 and len(setup.engines[0].asked) == 1
            await other.stop()

    run(story())


def test_26_stale_metrics_never_stop_routing() -> None:
    """llm-d-router#2408: metrics older than 200 ms failed closed; 40 ms became 9.7 s."""
    busy = b"vllm:num_requests_running 8\nvllm:num_requests_waiting 200\nvllm:kv_cache_usage_perc 1.0\n"

    async def story() -> None:
        async with gateway_over(answer, gateway=GatewaySpec(scrape_interval=0.1)) as setup:
            setup.engines[0].metrics = busy
            plane = setup.gateway.plane
            await until(lambda: plane.dispatcher.snapshot(plane.clock())["replicas"][0]["waiting"] == 200)
            setup.engines[0].metrics = None  # from now on 404: the last reading grows old
            async with within(2.0):
                assert (await setup.chat()).status == 200

    run(story())


def test_25_scrapes_and_probes_do_not_touch_load() -> None:
    async def story() -> None:
        async with gateway_over(hang, gateway=GatewaySpec(scrape_interval=0.05), timeouts=HOURS) as setup:
            (engine,) = setup.engines
            engine.metrics = b"vllm:num_requests_running 0\nvllm:num_requests_waiting 0\n"
            tasks = [asyncio.ensure_future(setup.chat()) for _ in range(3)]
            await until(lambda: len(engine.asked) == 3)
            engine.pages_asked.clear()
            await until(lambda: len(engine.pages_asked) >= 8)
            assert setup.in_flight() == {"p/0": 3}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    run(story())


def test_15_a_flapping_endpoint_never_makes_counters_negative() -> None:
    """llm-d-router#1739, aibrix#2463."""

    async def story() -> None:
        async with gateway_over(slowly, slowly, timeouts=HOURS, model=PATIENT_MODEL) as setup:
            load = [asyncio.ensure_future(setup.chat()) for _ in range(20)]
            for _ in range(10):
                await asyncio.sleep(0.02)
                setup.gateway.apply(Lost("p/0", "flap"))
                assert all(count >= 0 for count in setup.in_flight().values())
                setup.gateway.apply(Found(Endpoint("p/0", "p", setup.engines[0].url)))
            assert {response.status for response in await asyncio.gather(*load)} == {200}
            assert set(setup.in_flight().values()) == {0}

    run(story())


def test_refused_connections_and_junk_answers_fail_over() -> None:
    async def junk(asked: Asked, wire: Wire) -> None:
        await wire.send(b"SSH-2.0-OpenSSH\r\n\r\n")

    async def huge_head(asked: Asked, wire: Wire) -> None:
        await wire.send(b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 50_000)
        await asked.gone.wait()

    async def interim(asked: Asked, wire: Wire) -> None:
        await wire.send(b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + whole())

    async def story() -> None:
        for bad in (junk, huge_head):
            async with gateway_over(bad, answer) as setup:
                for _ in range(4):
                    assert (await setup.chat()).body == JSON_ANSWER
        async with gateway_over(interim) as setup:
            assert (await setup.chat()).body == JSON_ANSWER

    run(story())


def test_total_outage_is_answered_soon_and_not_multiplied() -> None:
    async def story() -> None:
        async with gateway_over(error500, error500, error500, error500) as setup:
            responses = await asyncio.gather(*(setup.chat() for _ in range(100)))
            assert {response.status for response in responses} == {500}
            attempts = sum(len(engine.asked) for engine in setup.engines)
            assert attempts <= 100 + 50 + 60, "retries are a share of requests, not a multiple"

    run(story())


def test_34_stop_fails_readiness_first_then_finishes_streams() -> None:
    """smg#1745: keep accepting while balancers learn of it."""

    async def story() -> None:
        go_on = asyncio.Event()

        async def in_two_parts(asked: Asked, wire: Wire) -> None:
            await wire.send(STREAM_HEAD + chunk(ROLE) + chunk(delta("a")))
            await go_on.wait()
            await wire.send(chunk(delta("b")) + b"0\r\n\r\n")

        gateway = GatewaySpec(shutdown_delay=1.5)
        async with gateway_over(in_two_parts, gateway=gateway, timeouts=HOURS, drain=20.0) as setup:
            admin = f"http://127.0.0.1:{setup.gateway.admin_port}"
            assert (await fetch(admin + "/readyz", timeout=20)).status == 200
            stream = asyncio.ensure_future(setup.chat(stream=True))
            await until(lambda: setup.engines[0].asked)
            stop = asyncio.ensure_future(setup.gateway.stop())
            await until(lambda: setup.gateway.plane.draining)
            assert (await fetch(admin + "/readyz", timeout=20)).status == 503
            late = asyncio.ensure_future(setup.chat(stream=True))  # the balancer has not heard yet
            await until(lambda: len(setup.engines[0].asked) == 2)
            await until(lambda: not setup.gateway._listeners[0].is_serving())
            assert not stop.done(), "two requests run still"
            go_on.set()
            body = (await stream).body
            assert body.count(b"data: ") == 3
            assert (await late).status == 200
            await stop
            with pytest.raises(Exception, match="connect"):
                await setup.chat()

    run(story())


def test_34_connections_that_are_kept_serve_on_until_the_port_is_closed() -> None:
    """A balancer that has not noticed yet uses those that it keeps; one that we close under its request is a 502."""

    async def story() -> None:
        async with gateway_over(answer) as setup:
            plane = setup.gateway.plane
            ask = b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n"
            reader, writer = await setup.raw()
            writer.write(ask)
            assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 200")
            plane.draining = True  # as `stop` does it, before the delay
            for connection in list(plane.connections):
                connection.check(plane.clock())
            writer.write(ask)
            last = await reader.read()
            assert last.startswith(b"HTTP/1.1 200") and b"connection: close" in last
            quiet, silent = await setup.raw()
            await until(lambda: plane.connections)
            plane.close_idle()  # and behind it
            assert await quiet.read() == b""
            for one in (writer, silent):
                one.close()

    run(story())


@pytest.mark.parametrize("sent", [20, -5], ids=["in the head", "in the body"])
def test_34_who_is_sending_a_request_when_the_gateway_stops_is_answered(sent: int) -> None:
    body = b'{"model":"m","messages":[]}'
    request = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)

    async def story() -> None:
        async with gateway_over(answer, timeouts=HOURS, drain=60.0) as setup:
            plane = setup.gateway.plane
            reader, writer = await setup.raw()
            writer.write(request[:sent])
            await until(lambda: any(connection.receiving for connection in plane.connections))
            stop = asyncio.ensure_future(setup.gateway.stop())
            await until(lambda: plane.leaving)
            writer.write(request[sent:])
            response = await reader.read()
            assert response.startswith(b"HTTP/1.1 200") and b"connection: close" in response
            await stop
            writer.close()

    run(story())


def test_as06_a_forced_end_is_an_error_event_not_a_bare_cut() -> None:
    async def forever(asked: Asked, wire: Wire) -> None:
        await wire.send(STREAM_HEAD + chunk(ROLE) + chunk(delta("a")))
        await asked.gone.wait()

    async def story() -> None:
        async with gateway_over(forever, timeouts=Timeouts()) as setup:
            stream = asyncio.ensure_future(setup.chat(stream=True))
            await until(lambda: any(one.content_at for one in setup.gateway.plane.exchanges.values()))
            await setup.gateway.stop()  # drain is 2 s in these tests
            body = (await stream).body
            assert b'"shutting_down"' in body and b"[DONE]" not in body

    run(story())


def test_a_static_endpoint_is_let_in_when_it_answers() -> None:
    """dp-04: an address is not a replica that can serve."""

    async def story() -> None:
        place = socket.socket()  # nobody else gets the port, and nobody listens on it
        place.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{place.getsockname()[1]}"
        spec = ClusterSpec(
            gateway=GatewaySpec(listen="127.0.0.1:0", admin="127.0.0.1:0", drain=1.0),
            models={"m": ModelSpec("m", {"p": 1})},
            pools={"p": PoolSpec("p", "vllm", endpoints=(endpoint,))},
        )
        one = Gateway(spec, sources=configured)
        await one.start()
        try:
            admin = f"http://127.0.0.1:{one.admin_port}"

            async def row() -> dict[str, Any]:
                (row,) = json.loads((await fetch(admin + "/state", timeout=20)).body)["replicas"]
                return dict(row)

            async def is_ready() -> bool:
                return (await fetch(admin + "/readyz", timeout=20)).status == 200

            async def come(what: Callable[[], Awaitable[bool]]) -> None:
                async with within(20.0):
                    while not await what():
                        await asyncio.sleep(0.05)

            async def says(words: str) -> bool:
                return words in (await row())["reason"]

            # Whoever looks is told of it, and why nothing goes there.
            await come(lambda: says("can't connect"))
            assert (await row())["state"] == "not_ready" and (await row())["url"] == endpoint
            assert not await is_ready()
            late = StubEngine(answer)
            serving, late.listed = late.listed, b'{"data":[{"id":"another"}]}'
            await late.start(place=place)
            await come(lambda: says("another"))
            assert (await row())["state"] == "not_ready" and not await is_ready()
            late.listed = serving
            await come(is_ready)
            assert (await row())["state"] != "not_ready"
            await late.stop()
        finally:
            await one.stop()

    run(story())


def test_29_each_model_has_its_own_cursor_and_1273_each_replica_its_own_count() -> None:
    """production-stack#916; litellm#1273: four replicas behind one alias, four calls: one each."""

    async def story() -> None:
        all_here = asyncio.Event()
        waits = answers_when(all_here)
        async with gateway_over(waits, waits, waits, waits, timeouts=HOURS) as setup:
            asking = asyncio.gather(*(setup.chat() for _ in range(4)))
            await until(lambda: sum(len(engine.asked) for engine in setup.engines) == 4)
            all_here.set()
            assert {response.status for response in await asking} == {200}
            assert [len(engine.asked) for engine in setup.engines] == [1, 1, 1, 1]

    run(story())


def test_admin_says_what_is_going_on() -> None:
    async def story() -> None:
        async with gateway_over(answer, answer) as setup:
            admin = f"http://127.0.0.1:{setup.gateway.admin_port}"
            await setup.chat()
            state = json.loads((await fetch(admin + "/state", timeout=20)).body)
            assert {replica["id"] for replica in state["replicas"]} == {"p/0", "p/1"}
            assert {"state", "url", "running", "waiting", "kv_usage", "in_flight", "age_s", "reason", "pool"} <= set(
                state["replicas"][0]
            )
            page = (await fetch(admin + "/metrics", timeout=20)).body
            assert b"kilocard_requests_total" in page and b"kilocard_replica_state" in page
            assert (await fetch(admin + "/healthz", timeout=20)).status == 200
            assert (await fetch(admin + "/nothing", timeout=20)).status == 404

    run(story())
