"""Sizes, labels, replicas that come and go: what went wrong elsewhere, played again. Names begin with the case's id in
docs/cases.md."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from urllib.parse import quote

import pytest
from stub_engine import (
    DONE,
    END,
    HOURS,
    JSON_ANSWER,
    PATIENT,
    STREAM_HEAD,
    Asked,
    HandClock,
    Setup,
    StubEngine,
    Wire,
    answer,
    chunk,
    delta,
    gateway_over,
    run,
    until,
    whole,
    within,
)

from kilocard.core.replica import Endpoint, Found, Leaving
from kilocard.gateway.server import Gateway
from kilocard.metrics.exact import parse
from kilocard.net.client import fetch
from kilocard.scrape.discovery.configured import configured
from kilocard.spec.model import ClusterSpec, GatewaySpec, HoldSpec, Limits, ModelSpec, PoolSpec

MIB = 1024 * 1024


def state(setup: Setup, replica: str = "p/0") -> str:
    plane = setup.gateway.plane
    return next(r["state"] for r in plane.dispatcher.snapshot(plane.clock())["replicas"] if r["id"] == replica)


def sized(size: int) -> bytes:
    frame = b'{"model":"m","prompt":"","input":"x"}'
    return frame.replace(b'""', b'"' + b"x" * (size - len(frame)) + b'"')


def test_gw_14_the_cap_is_32_mib_to_the_byte_and_said_in_the_413() -> None:
    assert Limits().body >= 32 * MIB

    async def story() -> None:
        async with gateway_over(answer, timeouts=HOURS) as setup:
            assert (await setup.post(sized(32 * MIB), "/v1/completions")).status == 200
            refused = await setup.post(sized(32 * MIB + 1), "/v1/completions")
            error = json.loads(refused.body)["error"]
            assert (refused.status, error["code"]) == (413, "body_too_large")
            assert str(32 * MIB) in error["message"]
            assert len(setup.engines[0].asked) == 1

    run(story())


@pytest.mark.parametrize(
    "path",
    ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/embeddings", "/v1/rerank"],
)
def test_gw_14_the_same_limit_holds_on_all_paths(path: str) -> None:
    """32,769 bytes were 413 elsewhere; a turn of 200k tokens is 1 MB, one with pictures 12 MiB."""

    async def story() -> None:
        async with gateway_over(answer, limits=Limits(body=13 * MIB), timeouts=HOURS) as setup:
            for size in (32_768, 32_769, MIB, 12 * MIB):
                assert (await setup.post(sized(size), path)).status == 200
            assert (await setup.post(sized(13 * MIB + 1), path)).status == 413

    run(story())


@pytest.mark.parametrize("kb", [127_000, 129_000, 127 * 1024, 129 * 1024])
def test_gw_16_127_kb_and_129_kb_are_the_same(kb: int) -> None:
    async def story() -> None:
        async with gateway_over(answer) as setup:
            body = sized(kb)
            assert (await setup.post(body, "/v1/completions")).status == 200
            assert setup.engines[0].asked[0].body == body

    run(story())


LOADING = [
    (400, b'{"error":"Model x is not ready yet."}'),
    (503, b'{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}'),
    (503, b'{"error": "Model with name x is not ready."}'),
]


@pytest.mark.parametrize(("status", "body"), LOADING)
def test_as_09_not_ready_is_no_answer_for_the_client(status: int, body: bytes) -> None:
    """The first request after a scale from zero: another replica takes it, or it waits until the model is there."""
    ready = False

    async def starting(asked: Asked, wire: Wire) -> None:
        if ready:
            await answer(asked, wire)
        else:
            await wire.send(whole(body, f"{status} No"))

    async def story() -> None:
        nonlocal ready
        ready = False
        async with gateway_over(starting, answer) as setup:
            HandClock(setup)  # the while is not over before the last has been answered
            for stream in (False, True) * 3:
                assert (await setup.chat(stream=stream)).status == 200
            assert len(setup.engines[0].asked) == 1, "once told is enough: it is left alone for a while"
            assert state(setup) == "ejected"
        model = ModelSpec("m", {"p": 1}, hold=HoldSpec(100, 40.0))
        async with gateway_over(starting, model=model, timeouts=HOURS) as setup:
            waiting = [asyncio.ensure_future(setup.chat()) for _ in range(10)]
            dispatcher = setup.gateway.plane.dispatcher
            await until(lambda: setup.engines[0].asked and dispatcher.held == 10)
            async with within(20.0) as beats:
                while beats.seconds < 0.6:
                    await asyncio.sleep(0.01)
            assert not any(task.done() for task in waiting)
            assert len(setup.engines[0].asked) < 20, "it is not stormed"
            ready = True
            assert {response.status for response in await asyncio.gather(*waiting)} == {200}

    run(story())


def test_as_09_a_model_that_does_not_get_ready_is_503_with_retry_after() -> None:
    async def starting(asked: Asked, wire: Wire) -> None:
        await wire.send(whole(LOADING[0][1], "400 Bad Request"))

    async def story() -> None:
        model = ModelSpec("m", {"p": 1}, hold=HoldSpec(100, 0.6))
        async with gateway_over(starting, model=model) as setup:
            response = await setup.chat()
            assert (response.status, json.loads(response.body)["error"]["code"]) == (503, "not_ready")
            assert int(response.headers["retry-after"]) >= 1

    run(story())


def test_as_09_a_replica_without_the_adapter_is_passed_over_and_the_last_word_is_the_engines() -> None:
    missing = b'{"object":"error","message":"The model `m` does not exist.","type":"NotFoundError","code":404}'

    async def lacks(asked: Asked, wire: Wire) -> None:
        await wire.send(whole(missing, "404 Not Found"))

    async def story() -> None:
        async with gateway_over(lacks, answer) as setup:
            for _ in range(6):
                assert (await setup.chat()).status == 200
        async with gateway_over(lacks) as setup:
            response = await setup.chat()
            assert (response.status, response.body) == (404, missing)

    run(story())


def test_as_09_other_refusals_are_answers_whatever_words_are_in_them() -> None:
    said = b'{"error":{"message":"invalid value: Model x is not ready yet.","type":"invalid_request_error"}}'

    async def refuses(asked: Asked, wire: Wire) -> None:
        await wire.send(whole(said, "400 Bad Request"))

    async def story() -> None:
        async with gateway_over(refuses, refuses) as setup:
            for _ in range(5):
                response = await setup.chat()
                assert (response.status, response.body) == (400, said)
            assert sum(len(engine.asked) for engine in setup.engines) == 5
            assert {state(setup, f"p/{n}") for n in range(2)} == {"ready"}

    run(story())


@asynccontextmanager
async def discovered(engine: StubEngine, *models: str) -> AsyncIterator[Gateway]:
    """A gateway that has to find out by itself when the engine can serve; SGLang's health page is /health."""
    spec = ClusterSpec(
        gateway=GatewaySpec(listen="127.0.0.1:0", admin="127.0.0.1:0", drain=1.0),
        models={name: ModelSpec(name, {"p": 1}) for name in models},
        pools={"p": PoolSpec("p", "sglang", endpoints=(engine.url,))},
    )
    one = Gateway(spec, sources=configured)
    await one.start()
    try:
        yield one
    finally:
        await one.stop()


def test_dp_04_a_health_page_is_not_enough_the_model_and_its_adapters_have_to_be_listed() -> None:
    async def story() -> None:
        engine = StubEngine(answer)
        engine.listed = b'{"object":"list","data":[{"id":"base"}]}'
        await engine.start()
        async with discovered(engine, "m", "adapter") as gateway:
            ready = f"http://127.0.0.1:{gateway.admin_port}/readyz"
            for listed in (b'{"data":[{"id":"base"}]}', b'{"data":[{"id":"base"},{"id":"m"}]}'):
                engine.listed = listed
                engine.pages_asked.clear()
                await until(lambda: engine.pages_asked.count("/v1/models") >= 2)
                assert "/health" in engine.pages_asked
                assert (await fetch(ready, timeout=20)).status == 503
            engine.listed = b'{"data":[{"id":"base"},{"id":"m"},{"id":"adapter"}]}'
            async with within(20.0):
                while (await fetch(ready, timeout=20)).status != 200:
                    await asyncio.sleep(0.02)
        await engine.stop()

    run(story())


def test_dp_04_a_model_that_is_taken_out_of_the_file_is_no_longer_waited_for() -> None:
    async def story() -> None:
        engine = StubEngine(answer)
        await engine.start()
        async with discovered(engine, "m", "typo") as gateway:
            ready = f"http://127.0.0.1:{gateway.admin_port}/readyz"
            await until(lambda: "/v1/models" in engine.pages_asked)
            assert (await fetch(ready, timeout=20)).status == 503
            models = {"m": gateway.spec.models["m"]}
            gateway.reload(replace(gateway.spec, models=models))
            async with within(20.0):
                while (await fetch(ready, timeout=20)).status != 200:
                    await asyncio.sleep(0.02)
        await engine.stop()

    run(story())


def test_lb_16_a_second_replica_comes_under_load_and_goes_again() -> None:
    """1 → 2 → 1 with 64 in flight: the newcomer has one request first, then more; nobody sees an error."""
    most_new = 0
    now_new = 0

    async def stream(asked: Asked, wire: Wire) -> None:
        await wire.send(STREAM_HEAD)
        for _ in range(5):
            await wire.send(chunk(delta("x")))
            await asyncio.sleep(0.01)
        await wire.send(chunk(DONE) + END)

    async def counted(asked: Asked, wire: Wire) -> None:
        nonlocal most_new, now_new
        now_new += 1
        most_new = max(most_new, now_new)
        try:
            await stream(asked, wire)
        finally:
            now_new -= 1

    async def story() -> None:
        model = ModelSpec("m", {"p": 1}, hold=HoldSpec(1000, 60.0), slow_start=2.0)
        drained: list[str] = []
        async with gateway_over(stream, model=model, timeouts=HOURS) as setup:
            clock = HandClock(setup)
            await clock.forward(2.1)  # the first of a cold pool is warm by now
            setup.gateway.plane.on_drained = drained.append
            statuses: Counter[int] = Counter()
            going = True

            async def client() -> None:
                while going:
                    response = await setup.chat(stream=True)
                    statuses[response.status] += 1
                    assert response.body.endswith(DONE), response.body

            async def answers(count: int) -> None:
                end = statuses[200] + count
                await until(lambda: statuses[200] >= end, 60.0)

            clients = [asyncio.ensure_future(client()) for _ in range(64)]
            await until(lambda: setup.in_flight()["p/0"] == 64)
            new = StubEngine(counted)
            await new.start()
            setup.gateway.apply(Found(Endpoint("p/1", "p", new.url)))
            await clock.forward(0.1)
            await answers(200)
            assert most_new == 2 and state(setup, "p/1") == "slow_start"
            await clock.forward(0.9)
            await answers(200)
            halfway = most_new
            assert 2 < halfway <= 20, "it rises, and is not flooded"
            await clock.forward(1.1)
            await until(lambda: most_new > halfway)
            setup.gateway.apply(Leaving("p/1", "scale down"))
            await until(lambda: "p/1" in drained)
            asked = len(new.asked)
            await answers(200)
            assert len(new.asked) == asked and now_new == 0
            going = False
            await asyncio.gather(*clients)
            assert set(statuses) == {200}
            await new.stop()

    run(story())


def test_mt_01_04_17_what_an_engine_does_not_say_is_null_in_our_state_and_not_on_our_page() -> None:
    """No KV gauge, NaN and infinities: unknown, never 0, and never a NaN token in JSON."""

    async def story() -> None:
        async with gateway_over(answer, gateway=GatewaySpec(scrape_interval=0.1)) as setup:
            setup.engines[0].metrics = (
                b"# page\nvllm:num_requests_running 3\nvllm:num_requests_waiting NaN\n"
                b'vllm:kv_cache_usage_perc +Inf\nsglang:fwd_occupancy{model_name="m"} NaN\nx -Inf\n'
            )
            admin = f"http://127.0.0.1:{setup.gateway.admin_port}"

            def refuse(token: str) -> None:
                raise AssertionError(f"{token} is no JSON")

            async with within(20.0):
                while True:
                    body = (await fetch(admin + "/state", timeout=20)).body
                    row = json.loads(body, parse_constant=refuse)["replicas"][0]
                    if row["age_s"] is not None:
                        break
                    await asyncio.sleep(0.02)
            assert row["running"] == 3.0 and row["kv_usage"] is None
            page = parse((await fetch(admin + "/metrics", timeout=20)).body)
            names = {sample.name for sample in page.samples}
            assert "kilocard_replica_running" in names and "kilocard_replica_kv_usage" not in names
            assert (await setup.chat()).body == JSON_ANSWER

    run(story())


def test_mt_05_a_model_name_of_any_kind_leaves_our_page_whole() -> None:
    async def story() -> None:
        async with gateway_over(answer) as setup:
            before = len(parse(setup.gateway.plane.telemetry.registry.render()).samples)
            for name in ('evil"name\n\u2028x', "\\", "m\u0000", "{}", "读"):
                assert (await setup.post({"model": name})).status == 404
            page = parse(setup.gateway.plane.telemetry.registry.render())
            assert page.junk == 0
            models = {sample.labels["model"] for sample in page.samples if "model" in sample.labels}
            assert models == {"m", "other"}
            assert len(page.samples) <= before + 3, "one more series of requests, one of refusals"

    run(story())


def test_a_model_is_found_by_its_name_as_clients_write_it_in_a_path() -> None:
    """OpenAI's clients write `/` as %2F there, and all that is not ASCII in percents."""
    name = "Qwen/Qwen2.5 千 50%"

    async def story() -> None:
        async with gateway_over(answer) as setup:
            spec = setup.gateway.spec
            setup.gateway.reload(replace(spec, models={**spec.models, name: ModelSpec(name, {"p": 1})}))
            for written in (quote(name, safe=""), quote(name)):
                found = await fetch(f"{setup.url}/v1/models/{written}", timeout=20)
                assert (found.status, json.loads(found.body)["id"]) == (200, name)
            assert (await fetch(f"{setup.url}/v1/models/m%2", timeout=20)).status == 404

    run(story())


def test_mt_11_a_scanners_paths_are_counted_under_one_code() -> None:
    paths = ["/../../etc/passwd", "/${jndi:ldap:/localhost}", "/wp-admin", "/v1/../v1/models", "/%00"]

    async def story() -> None:
        async with gateway_over(answer) as setup:
            reader, writer = await setup.raw()
            for number in range(300):
                writer.write(b"GET %b/%d HTTP/1.1\r\nhost: x\r\n\r\n" % (paths[number % 5].encode(), number))
                head = await reader.readuntil(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 404")
                length = re.search(rb"content-length: (\d+)", head.lower())
                assert length is not None
                await reader.readexactly(int(length[1]))
            writer.close()
            text = setup.gateway.plane.telemetry.registry.render()
            assert parse(text).junk == 0
            assert not any(word in text for word in (b"passwd", b"jndi", b"wp-admin"))
            assert b'kilocard_refused_total{code="unknown_path"} 300' in text
            assert len(text) < 64 * 1024

    run(story())


def test_43_no_hidden_cap_on_connections() -> None:
    """production-stack#767: 100 connections, the default of an HTTP library, were the cap of a whole gateway."""

    async def story() -> None:
        all_here = asyncio.Event()
        here = 0

        async def waits_for_all(asked: Asked, wire: Wire) -> None:
            nonlocal here
            here += 1
            if here == 300:
                all_here.set()
            await all_here.wait()
            await answer(asked, wire)

        async with gateway_over(waits_for_all, timeouts=PATIENT) as setup:
            responses = await asyncio.gather(*(setup.chat(stream=True) for _ in range(300)))
            assert {response.status for response in responses} == {200}

    run(story())


def test_43_the_time_to_the_first_token_is_that_of_the_first() -> None:
    """aibrix#2481: it was taken from the last chunk, which is sent here when the first is long there."""

    async def story() -> None:
        first_seen = asyncio.Event()

        async def long(asked: Asked, wire: Wire) -> None:
            await wire.send(STREAM_HEAD)
            await asyncio.sleep(0.1)
            await wire.send(chunk(delta("first")))
            await first_seen.wait()
            await asyncio.sleep(0.2)
            await wire.send(chunk(delta("last")) + chunk(DONE) + END)

        async with gateway_over(long, timeouts=PATIENT) as setup:
            body = json.dumps({"model": "m", "stream": True}).encode()
            reader, writer = await setup.raw()
            began = time.monotonic()
            writer.write(
                b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
            )
            await reader.readuntil(b"first")
            took = time.monotonic() - began
            first_seen.set()
            await reader.readuntil(b"\r\n0\r\n\r\n")
            writer.close()
            page = parse(setup.gateway.plane.telemetry.registry.render())
            (seconds,) = (
                one.value
                for one in page.samples
                if one.name == "kilocard_time_to_first_token_seconds_sum" and one.labels["model"] == "m"
            )
            assert 0.09 <= seconds <= took  # uvloop's timers count in whole milliseconds

    run(story())


def test_43_tokens_of_a_message_can_be_counted() -> None:
    """otari#124: 404, and agents stopped."""

    async def counts(asked: Asked, wire: Wire) -> None:
        assert asked.target == "/v1/messages/count_tokens"
        await wire.send(whole(b'{"input_tokens":14}'))

    async def story() -> None:
        async with gateway_over(counts) as setup:
            response = await setup.post({"model": "m", "messages": []}, "/v1/messages/count_tokens")
            assert (response.status, response.body) == (200, b'{"input_tokens":14}')

    run(story())
