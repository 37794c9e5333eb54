"""`x-kilocard-receipt: 1`: the answer says where it came from and why."""

from __future__ import annotations

import asyncio
import json
import re
import time
from typing import Any

import pytest
from stub_engine import Asked, Setup, Wire, answer, die, error500, gateway_over, run, until, whole

from kilocard.core.replica import Endpoint, Found
from kilocard.gateway.state import state
from kilocard.net.client import Response
from kilocard.spec.model import GatewaySpec, HoldSpec, ModelSpec, TenantLimits, TenantSpec

ASK = ("x-kilocard-receipt", "1")


def receipt(response: Response) -> dict[str, Any]:
    text = response.headers["x-kilocard-receipt"]
    assert text.isascii() and len(text) <= 2048
    document: dict[str, Any] = json.loads(text)
    assert json.dumps(document, separators=(",", ":")) == text, "compact"
    return document


async def ask(setup: Setup, stream: bool = False, **more: Any) -> Response:
    body = {"model": "m", "messages": [], "stream": stream}
    return await setup.post(body, headers=[ASK], **more)


@pytest.mark.parametrize("stream", [False, True])
def test_a_receipt_says_which_replica_and_why(stream: bool) -> None:
    async def story() -> None:
        async with gateway_over(answer, answer, answer, gateway=GatewaySpec(scrape_interval=0.1)) as setup:
            setup.engines[0].metrics = b"vllm:num_requests_running 3\nvllm:num_requests_waiting 0\n"
            plane = setup.gateway.plane
            async with asyncio.timeout(20):
                while plane.dispatcher.snapshot(plane.clock())["replicas"][0]["running"] != 3:
                    await asyncio.sleep(0.02)
            response = await ask(setup, stream)
            assert response.status == 200
            said = receipt(response)
            assert (said["model"], said["pool"], said["policy"]) == ("m", "p", "queue_depth")
            assert said["replica"] in {"p/1", "p/2"} and said["replica"] == said["chosen"]["replica"]
            assert said["reason"].startswith("queue_depth")
            assert said["attempts"] == [{"replica": said["replica"]}] and said["held_s"] == 0.0
            assert said["chosen"]["in_flight"] == 0, "as it was before this request"
            others = {other["replica"]: other for other in said["alternatives"]}
            assert others["p/0"]["running"] == 3.0 and 0 <= others["p/0"]["age_s"] < 10
            scores = [said["score"], *(other["score"] for other in said["alternatives"])]
            assert scores == sorted(scores) and len(scores) == 3
            assert not any("x-kilocard-receipt" in asked.headers for engine in setup.engines for asked in engine.asked)

    run(story())


def test_only_who_asks_gets_one() -> None:
    async def story() -> None:
        async with gateway_over(answer) as setup:
            assert "x-kilocard-receipt" in dict((await ask(setup)).headers)
            assert "x-kilocard-receipt" not in dict((await setup.chat()).headers)

    run(story())


def test_receipts_can_be_off() -> None:
    async def story() -> None:
        async with gateway_over(answer, gateway=GatewaySpec(receipts=False)) as setup:
            response = await ask(setup)
            assert response.status == 200 and "x-kilocard-receipt" not in response.headers
            assert "x-kilocard-receipt" not in setup.engines[0].asked[0].headers

    run(story())


@pytest.mark.parametrize(("script", "fault"), [(die, "reset"), (error500, "status")])
def test_after_a_retry_it_tells_of_the_last_attempt_and_of_the_others_faults(script: Any, fault: str) -> None:
    async def story() -> None:
        async with gateway_over(script, answer) as setup:
            for _ in range(6):
                response = await ask(setup)
                said = receipt(response)
                assert response.status == 200 and said["replica"] == "p/1"
                if len(said["attempts"]) == 2:
                    break
            assert said["attempts"] == [{"replica": "p/0", "fault": fault}, {"replica": "p/1"}]
            assert all(other["replica"] != "p/0" for other in said["alternatives"])
            assert len(response.headers["x-kilocard-receipt"]) == len(json.dumps(said, separators=(",", ":"))), "one"

    run(story())


def test_an_error_has_one_too() -> None:
    async def story() -> None:
        async with gateway_over(die, model=ModelSpec("m", {"p": 1}, hold=HoldSpec(10, 0.2))) as setup:
            response = await ask(setup)
            said = receipt(response)
            assert response.status == 502 and said["refused"] == "reset"
            assert said["attempts"][0] == {"replica": "p/0", "fault": "reset"}
            assert said["chosen"]["in_flight"] == 0, "as it was when it was chosen, not after the failure"
            unknown = await setup.post({"model": "😀\r\nx: y" * 100}, headers=[ASK])
            assert unknown.status == 404 and receipt(unknown)["refused"] == "model_not_found"

    run(story())


def test_what_is_refused_has_the_code_of_the_answer() -> None:
    """Engines' queues that are full are told as such, in both."""

    async def full(asked: Asked, wire: Wire) -> None:
        await wire.send(whole(b'{"error":{"message":"queue full"}}', "429 Too Many Requests"))

    async def story() -> None:
        async with gateway_over(full) as setup:
            response = await ask(setup)
            assert receipt(response)["refused"] == json.loads(response.body)["error"]["code"] == "engine_queue_full"

    run(story())


def test_a_wait_is_in_the_receipt() -> None:
    async def story() -> None:
        async def first_waits_for_second(asked: Asked, wire: Wire) -> None:
            await until(lambda: asked.number > 1 or len(setup.gateway.plane.exchanges) == 2)
            await asyncio.sleep(0.1)
            await answer(asked, wire)

        async with gateway_over(first_waits_for_second, max_in_flight=1) as setup:
            first = asyncio.ensure_future(setup.chat())
            await until(lambda: setup.engines[0].asked)
            began = time.monotonic()
            said = receipt(await ask(setup))
            assert 0.05 < said["held_s"] <= time.monotonic() - began and said["held"] == "all_busy"
            await first

    run(story())


@pytest.mark.parametrize(("patience", "attempts"), [(0.2, {1, 2}), (5.0, {3})])
def test_a_wait_after_a_failure_is_a_wait_too(patience: float, attempts: set[int]) -> None:
    """It is in the receipt, and in what the log, the ledger, the metrics and the spans are told, whether a further
    attempt follows or none."""
    told: list[tuple[float, float]] = []

    async def story() -> None:
        async with gateway_over(die, model=ModelSpec("m", {"p": 1}, hold=HoldSpec(10, patience))) as setup:
            setup.gateway.plane.on_end.append(
                lambda exchange, outcome, now: told.append((exchange.held_seconds, now - exchange.arrived))
            )
            said = receipt(await ask(setup))
            ((held, total),) = told
            assert len(said["attempts"]) in attempts and said["held"]
            assert said["held_s"] == pytest.approx(held, abs=2e-3) and 0.1 < held <= total

    run(story())


def test_clients_never_see_where_replicas_live() -> None:
    """R20. Ids from the cluster file and from DNS are addresses."""

    async def story() -> None:
        async with gateway_over(answer, answer) as setup:
            for engine in setup.engines:
                setup.gateway.apply(Found(Endpoint(f"p/127.0.0.1:{engine.port}", "p", engine.url)))
            for _ in range(8):
                text = dict((await ask(setup)).headers)["x-kilocard-receipt"]
                assert "127.0.0.1" not in text
                # As a number by itself: times and scores may have a port's digits by chance.
                assert not any(re.search(rf"(?<![\d.]){engine.port}(?!\d)", text) for engine in setup.engines)
            assert '"p#1"' in text and '"p#2"' in text
            rows = state(setup.gateway.plane, setup.gateway.plane.clock(), {})["replicas"]
            assert {row["name"] for row in rows} == {"p/0", "p/1", "p#1", "p#2"}

    run(story())


def test_many_long_names_are_bounded() -> None:
    async def story() -> None:
        async with gateway_over(answer) as setup:
            for number in range(20):
                name = f"p/{'pod' * 60}-{number}"
                setup.gateway.apply(Found(Endpoint(name, "p", setup.engines[0].url)))
            said = receipt(await ask(setup))
            assert 4 <= len(said["alternatives"]) < 8

    run(story())


def test_a_receipt_goes_with_limits_headers() -> None:
    async def story() -> None:
        digest = "sha256:2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"  # of "secret"
        tenants = {"t": TenantSpec("t", (digest,), limits=TenantLimits(requests_per_minute=1))}
        async with gateway_over(answer, tenants=tenants) as setup:
            response = await setup.post({"model": "m"}, headers=[ASK, ("authorization", "Bearer secret")])
            headers = response.headers
            assert response.status == 200 and receipt(response)["replica"] == "p/0"
            assert any(name.startswith("x-ratelimit-") for name in headers)
            refused = await setup.post({"model": "m"}, headers=[ASK, ("authorization", "Bearer secret")])
            assert refused.status == 429 and "x-kilocard-receipt" not in dict(refused.headers), "nothing was routed"

    run(story())
