"""What is written down of a request, however it ends: one record each, with nothing of what was said in it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from stub_engine import (
    END,
    ROLE,
    STREAM_HEAD,
    Asked,
    Script,
    Setup,
    Wire,
    answer,
    chunk,
    delta,
    die,
    gateway_over,
    hang,
    run,
    whole,
)  # fmt: skip

from kilocard.gateway.recorder import Recorder
from kilocard.metrics.names import OTHER
from kilocard.spec.model import HoldSpec, Limits, ModelSpec, TenantLimits, TenantSpec
from kilocard.stores.access_log import encode
from kilocard.tenancy.usage import NOTHING, Record, Tokens

TENANTS = {"team-a": TenantSpec("team-a", ("sha256:2bd806c97f0e00af1a1fc3328fa763a9269723c8db8fac4f93af71db186d6e90",))}
KEY = [("authorization", "Bearer alice")]


class Kept:
    """A writer that keeps everything."""

    name = "ledger"
    written = dropped = errors = backlog = 0

    def __init__(self) -> None:
        self.records: list[Record] = []

    @property
    def add(self) -> Callable[[Record], None]:
        return self.records.append


async def recorded(setup: Setup) -> tuple[list[Record], list[Record]]:
    ledger, log = Kept(), Kept()
    Recorder(setup.gateway.plane, ledger=ledger, log=log)
    return ledger.records, log.records


def test_a_request_that_went_well() -> None:
    async def story() -> None:
        async with gateway_over(answer, tenants=TENANTS) as setup:
            ledger, log = await recorded(setup)
            for stream in (False, True):
                await setup.post({"model": "m", "stream": stream}, headers=[*KEY, ("x-request-id", "mine")])
            await setup.settles()
            assert ledger == log and len(log) == 2
            plain, stream_ = log
            assert (plain.tenant, plain.model, plain.pool, plain.replica) == ("team-a", "m", "p", "p/0")
            assert (plain.outcome, plain.status, plain.code, plain.attempts) == ("ok", 200, "", 1)
            assert plain.request_id.startswith(b"kc-") and plain.client_id == b"mine"
            assert plain.peer is not None and plain.peer[0] == "127.0.0.1"
            assert not plain.streamed and plain.first_at == 0.0
            assert stream_.streamed and stream_.started < stream_.first_at <= stream_.ended
            assert not stream_.tokens.estimated and stream_.tokens.output > 0

    run(story())


def test_21_a_client_that_leaves_is_charged_what_it_got() -> None:
    async def three_then_nothing(asked: Asked, wire: Wire) -> None:
        await wire.send(STREAM_HEAD + chunk(ROLE) + chunk(delta("x")) + chunk(delta("y")) + chunk(delta("z")))
        await asked.gone.wait()

    async def story() -> None:
        async with gateway_over(three_then_nothing) as setup:
            ledger, log = await recorded(setup)
            body = json.dumps({"model": "m", "stream": True}).encode()
            reader, writer = await setup.raw()
            writer.write(
                b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
            )
            await reader.readuntil(b'"z"')
            writer.transport.abort()
            await setup.settles()
            assert ledger == log
            (one,) = log
            assert (one.outcome, one.pool) == ("client_gone", "p")
            assert one.tokens == Tokens(len(body) // 4 + 1, 3, 0, estimated=True)
            assert one.peer is not None, "its address is known, although it is gone"

    run(story())


@pytest.mark.parametrize(
    ("script", "outcome"),
    [(die, "upstream_error"), (hang, "timeout")],
)
def test_a_failure_says_which_and_costs_nothing(script: Script, outcome: str) -> None:
    async def story() -> None:
        async with gateway_over(script, script) as setup:
            ledger, log = await recorded(setup)
            response = await setup.chat(stream=True)
            await setup.settles()
            assert ledger == log
            (one,) = log
            assert (one.outcome, one.status) == (outcome, response.status)
            assert one.code == json.loads(response.body)["error"]["code"]
            assert one.attempts >= 1 and one.pool == "p"
            assert one.tokens is NOTHING

    run(story())


def test_a_refusal_inside_a_stream_is_one_in_the_records() -> None:
    """Its client saw 200 and then an error: in the ledger it is no answer, and costs nothing."""

    async def refuses(asked: Asked, wire: Wire) -> None:
        refusal = b'data: {"error":{"message":"longer than the context","code":422}}\n\n'
        await wire.send(STREAM_HEAD + chunk(ROLE) + chunk(refusal) + END)

    async def story() -> None:
        async with gateway_over(refuses, tenants=TENANTS) as setup:
            ledger, log = await recorded(setup)
            response = await setup.post({"model": "m", "stream": True}, headers=KEY)
            await setup.settles()
            assert response.status == 200 and b"longer than the context" in response.body
            assert ledger == log
            (one,) = log
            assert (one.outcome, one.status, one.attempts) == ("client_error", 422, 1)
            assert one.tokens is NOTHING and one.first_at == 0.0

    run(story())


@pytest.mark.parametrize("first", [False, True], ids=["usage last", "usage first"])
def test_an_answer_that_is_too_large_to_be_gathered_is_charged_too(first: bool) -> None:
    """A batch of embeddings is soon more than 1 MiB."""
    numbers = b'"data":[' + b"0.125," * 300_000 + b"0]"
    usage = b'"usage":{"prompt_tokens":700,"total_tokens":700,"completion_tokens":0}'

    async def embeds(asked: Asked, wire: Wire) -> None:
        await wire.send(whole(b"{%b,%b}" % ((usage, numbers) if first else (numbers, usage))))

    async def story() -> None:
        async with gateway_over(embeds) as setup:
            ledger, _ = await recorded(setup)
            await setup.post({"model": "m", "input": "x"}, "/v1/embeddings")
            await setup.settles()
            assert [one.tokens for one in ledger] == [Tokens(700, 0, 0, False)]

    run(story())


def test_a_model_that_is_not_there_is_logged_and_not_in_the_ledger() -> None:
    """Else anybody could fill it with rows."""

    async def story() -> None:
        async with gateway_over(answer) as setup:
            ledger, log = await recorded(setup)
            await setup.post({"model": "x" * 5000})
            await setup.settles()
            assert not ledger
            assert [one.model for one in log] == [OTHER]
            assert [(one.asked_model[:9], len(one.asked_model) <= 256) for one in log] == [("x" * 9, True)]
            assert [(one.status, one.code) for one in log] == [(404, "model_not_found")]

    run(story())


async def without_key(setup: Setup) -> Any:
    return await setup.chat()


async def wrong_path(setup: Setup) -> Any:
    return await setup.post({"model": "m"}, path="/v1/nothing?secret=1")


async def wrong_json(setup: Setup) -> Any:
    return await setup.post(b"{", headers=KEY)


async def wrong_form(setup: Setup) -> Any:
    return await setup.post({"model": "m"}, "/v1/audio/transcriptions", headers=KEY)


async def too_large(setup: Setup) -> Any:
    return await setup.post(b" " * 5000, headers=KEY)


@pytest.mark.parametrize("ask", [without_key, wrong_path, wrong_json, wrong_form, too_large])
def test_what_is_refused_at_the_door_is_logged_and_not_in_the_ledger(ask: Any) -> None:
    async def story() -> None:
        async with gateway_over(answer, tenants=TENANTS, limits=Limits(body=4000)) as setup:
            ledger, log = await recorded(setup)
            response = await ask(setup)
            assert not ledger
            (one,) = log
            assert (one.status, one.outcome) == (response.status, "client_error")
            assert one.code == json.loads(response.body)["error"]["code"]
            assert one.tenant == ("team-a" if ask in (wrong_json, wrong_form) else ""), "whoever's key it was"
            assert one.request_id.decode() == response.headers["x-request-id"]
            line = encode(log, 0.0)
            assert b"secret" not in line and b"alice" not in line

    run(story())


def test_a_tenant_over_its_limit_is_logged_and_not_in_the_ledger() -> None:
    async def story() -> None:
        limited = replace(TENANTS["team-a"], limits=TenantLimits(requests_per_minute=1))
        async with gateway_over(answer, tenants={"team-a": limited}) as setup:
            ledger, log = await recorded(setup)
            for _ in range(3):
                await setup.post({"model": "m"}, headers=KEY)
            await setup.settles()
            assert [(one.status, one.code) for one in log] == [(200, ""), *[(429, "requests_per_minute")] * 2]
            assert [one.status for one in ledger] == [200]

    run(story())


def test_a_full_cluster_is_in_the_ledger_as_an_error() -> None:
    async def story() -> None:
        model = ModelSpec("m", {"p": 1}, hold=HoldSpec(10, 0.2))
        async with gateway_over(hang, model=model, max_in_flight=1) as setup:
            ledger, log = await recorded(setup)
            _, writer = await setup.raw()
            body = b'{"model":"m"}'
            writer.write(
                b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
            )
            while not setup.engines[0].asked:
                await asyncio.sleep(0.005)
            await setup.chat()
            assert log == ledger
            assert [(one.status, one.outcome, one.pool, one.attempts) for one in log] == [(503, "refused", "", 0)]
            assert log[0].held >= 0.2
            writer.transport.abort()

    run(story())


def test_the_model_list_is_logged_and_probes_are_not() -> None:
    async def story() -> None:
        async with gateway_over(answer) as setup:
            ledger, log = await recorded(setup)
            for path in (b"/health", b"/readyz", b"/ping", b"/v1/models"):
                reader, writer = await setup.raw()
                writer.write(b"GET %b HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n" % path)
                await reader.read()
                writer.close()
            assert [(one.path, one.status) for one in log] == [("/v1/models", 200)] and not ledger

    run(story())


def test_the_log_says_who_asked_for_the_model_list() -> None:
    async def story() -> None:
        async with gateway_over(answer, tenants=TENANTS) as setup:
            _, log = await recorded(setup)
            reader, writer = await setup.raw()
            for path, last in ((b"", b""), (b"/other", b"connection: close\r\n")):
                writer.write(b"GET /v1/models%b HTTP/1.1\r\nhost: x\r\nx-api-key: alice\r\n%b\r\n" % (path, last))
            await reader.read()
            writer.close()
            assert [(one.status, one.tenant) for one in log] == [(200, "team-a"), (404, "team-a")]

    run(story())


def test_nothing_that_was_said_is_written_down() -> None:
    async def story() -> None:
        async with gateway_over(answer, tenants=TENANTS) as setup:
            _, log = await recorded(setup)
            secret = "the-launch-code"
            body = {"model": "m", "messages": [{"role": "user", "content": secret}], "user": secret}
            await setup.post(body, headers=KEY)
            await setup.settles()
            line = encode(log, 0.0)
            assert secret.encode() not in line and b"alice" not in line and b"content" not in line
            assert b'"prompt_tokens":' in line

    run(story())


def test_as_many_records_as_requests_however_they_end() -> None:
    """400 requests, a third of whose clients leave in the middle."""

    async def slowly(asked: Asked, wire: Wire) -> None:
        await asyncio.sleep(0.001 * (asked.number % 7))
        await (die if asked.number % 5 == 0 else answer)(asked, wire)

    async def story() -> None:
        async with gateway_over(slowly, slowly, slowly) as setup:
            ledger, log = await recorded(setup)

            async def one(number: int) -> None:
                body = json.dumps({"model": "m", "stream": number % 2 == 0}).encode()
                reader, writer = await setup.raw()
                writer.write(
                    b"POST /v1/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b"
                    % (len(body), body)
                )
                if number % 3:
                    await reader.read()
                else:
                    await reader.read(20 * (number % 2))
                    writer.transport.abort()
                writer.close()

            for batch in range(8):
                await asyncio.gather(*(one(batch * 50 + n) for n in range(50)))
            await setup.settles(10)
            ids = {record.request_id for record in log}
            counted = sum(child.value for child in setup.gateway.plane.telemetry.requests.children.values())
            assert len(log) == len(ledger) == len(ids) == counted

    run(story())
