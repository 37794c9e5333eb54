"""Limits of tenants through the real gateway: never a token over, nothing kept that was not used.

Numbers in names are those of docs/faults-of-others.md.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from limited import BEARER, KEY, acme, limited_gateway, using
from openai import AsyncOpenAI, RateLimitError
from stub_engine import (
    DONE,
    END,
    HOURS,
    ROLE,
    STOP,
    STREAM_HEAD,
    USAGE,
    Asked,
    Script,
    Wire,
    answer,
    chunk,
    delta,
    die,
    error500,
    gateway_over,
    hang,
    run,
    until,
    whole,
)

from kilocard.gateway.state import state
from kilocard.net.client import Response
from kilocard.spec.model import HoldSpec, ModelSpec, TenantLimits, Timeouts
from kilocard.tenancy.book import Book
from kilocard.tenancy.limits import Ask, Denied, Grant, Used

SHORT_HOLD = ModelSpec("m", {"p": 1}, hold=HoldSpec(500, 0.2))


def error_of(response: Response) -> dict[str, Any]:
    detail: dict[str, Any] = json.loads(response.body)["error"]
    return detail


def test_16_refused_requests_leave_nothing_behind() -> None:
    """ray#61551, ray#61920."""

    async def story() -> None:
        tenants = acme(concurrency=2, requests_per_minute=1000, tokens_per_minute=100_000)
        async with limited_gateway(hang, tenants=tenants, timeouts=HOURS) as acmes:
            running = [asyncio.ensure_future(acmes.leaves(stream=True, until="sent"))]
            await asyncio.gather(*running)
            await acmes.setup.settles()
            before = acmes.used()
            held = [asyncio.ensure_future(acmes.chat(max_tokens=5)) for _ in range(2)]
            await until(lambda: acmes.used().in_flight == 2)
            full = acmes.used()
            refused = await asyncio.gather(*(acmes.chat(max_tokens=5) for _ in range(100)))
            assert {(r.status, error_of(r)["code"]) for r in refused} == {(429, "concurrency")}
            assert acmes.used() == full
            for task in held:
                task.cancel()
            await asyncio.gather(*held, return_exceptions=True)
            await acmes.setup.settles()
            assert acmes.used().in_flight == 0
            assert acmes.used().requests == before.requests + 2

    run(story())


@pytest.mark.parametrize(
    ("stream", "until"), [(True, "held"), (False, "held"), (True, "sent"), (False, "sent"), (True, "content")]
)
def test_17_a_client_that_leaves_gives_its_slot_back(stream: bool, until: str) -> None:
    """smg#2064."""

    async def streams(asked: Asked, wire: Wire) -> None:
        await wire.send(STREAM_HEAD + chunk(ROLE) + chunk(delta("x")))
        await asked.gone.wait()

    async def story() -> None:
        script = streams if until == "content" else hang
        async with limited_gateway(script, tenants=acme(concurrency=1)) as acmes:
            for _ in range(5):
                await acmes.leaves(stream=stream, until=until)
                await acmes.setup.settles()
                assert acmes.used().in_flight == 0

    run(story())


def test_18_slots_come_back_after_time_outs() -> None:
    """litellm#20256: never released after time-outs."""

    async def story() -> None:
        quick = Timeouts(connect=0.5, first_token=0.2, first_token_per_prompt_token=0.0, idle=0.2, total=0.6)
        async with limited_gateway(hang, tenants=acme(concurrency=3), timeouts=quick, model=SHORT_HOLD) as acmes:
            for _ in range(2):
                late = await asyncio.gather(*(acmes.chat(stream=True, max_tokens=5) for _ in range(3)))
                assert {response.status for response in late} <= {503, 504}
                assert acmes.used() == Used()  # what never was answered costs nothing, its count neither

    run(story())


def test_19_two_hundred_at_once_use_not_one_token_more_than_the_limit() -> None:
    """litellm#18730: 663 tokens used on a limit of 100."""

    async def story() -> None:
        async with limited_gateway(using(prompt=20), tenants=acme(tokens_per_minute=100)) as acmes:
            answers = await asyncio.gather(*(acmes.chat(max_tokens=7) for _ in range(200)))
            for _ in range(20):  # and what the first ones gave back is given out again, one by one
                answers.append(await acmes.chat(max_tokens=7))
            used = sum(27 for response in answers if response.status == 200)
            assert used == 81  # 108 would be over
            assert len(acmes.setup.engines[0].asked) == 3
            assert acmes.used().tokens == 81
            assert {error_of(r)["code"] for r in answers if r.status != 200} == {"tokens_per_minute"}

    run(story())


def test_19_two_hundred_at_once_pass_as_many_as_the_minute_has_requests() -> None:
    async def story() -> None:
        tenants = acme(TenantLimits(requests_per_minute=37), requests_per_minute=50)
        async with limited_gateway(using(5), tenants=tenants) as acmes:
            answers = await asyncio.gather(*(acmes.chat(max_tokens=5) for _ in range(200)))
            assert sorted(response.status for response in answers) == [200] * 37 + [429] * 163
            assert (acmes.used().requests, acmes.used("m").requests) == (37, 37)

    run(story())


def test_19_refused_for_concurrency_uses_no_request_and_no_token() -> None:
    """litellm#39309."""

    async def story() -> None:
        async with limited_gateway(using(5), tenants=acme(concurrency=1, requests_per_minute=50)) as acmes:
            answers = await asyncio.gather(*(acmes.chat(max_tokens=5) for _ in range(80)))
            passed = sum(response.status == 200 for response in answers)
            assert 1 <= passed < 80
            assert acmes.used()[:3] == (0, passed, 10 * passed)
            for _ in range(50 - passed):
                assert (await acmes.chat(max_tokens=5)).status == 200
            assert error_of(await acmes.chat(max_tokens=5))["code"] == "requests_per_minute"

    run(story())


async def reset(asked: Asked, wire: Wire) -> None:
    await wire.send(b"HTTP/1.1 200 OK\r\ncontent-le")
    wire.reset()


async def bad_request(asked: Asked, wire: Wire) -> None:
    await wire.send(whole(b'{"error":{"message":"no"}}', "400 Bad Request"))


async def error_first(asked: Asked, wire: Wire) -> None:
    await wire.send(STREAM_HEAD + chunk(ROLE) + chunk(b'data: {"error":{"message":"CUDA"}}\n\n') + END)


async def refuses_in_the_stream(asked: Asked, wire: Wire) -> None:
    """SGLang, and vLLM's generators: the head is out before the request is looked at."""
    refusal = b'data: {"error":{"message":"longer than the context","type":"BadRequestError","code":400}}\n\n'
    await wire.send(STREAM_HEAD + chunk(ROLE) + chunk(refusal) + chunk(DONE) + END)


@pytest.mark.parametrize("script", [die, error500, reset, bad_request, error_first, refuses_in_the_stream])
def test_19_a_burst_into_failing_engines_costs_nothing(script: Script) -> None:
    """Everything is refunded, requests too, whoever it was that failed."""

    async def story() -> None:
        tenants = acme(
            TenantLimits(requests_per_minute=60, tokens_per_day=100_000),
            requests_per_minute=60, tokens_per_minute=10_000, concurrency=60, tokens_per_month=10**6,
        )  # fmt: skip
        async with limited_gateway(script, script, tenants=tenants, model=SHORT_HOLD) as acmes:
            for _ in range(2):
                answers = await asyncio.gather(*(acmes.chat(stream=True, max_tokens=50) for _ in range(60)))
                in_events = script in (error_first, refuses_in_the_stream)
                assert not {200, 429} & {response.status for response in answers} or in_events
                await acmes.setup.settles()
                assert acmes.used() == acmes.used("m") == Used()

    run(story())


def streaming(*events: bytes) -> Script:
    async def script(asked: Asked, wire: Wire) -> None:
        await wire.send(STREAM_HEAD + b"".join(chunk(event) for event in events) + END)

    return script


def usage(prompt: int, output: int) -> dict[str, Any]:
    return {"usage": {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output}}


@pytest.mark.parametrize(
    ("script", "tokens"),
    [
        (answer, 7),
        (streaming(ROLE, delta("a", **usage(5, 1)), delta("b", **usage(5, 2)), STOP, DONE), 7),  # running totals
        (streaming(ROLE, delta("a"), delta("b", **usage(5, 9)), DONE), 14),  # usage beside the last text
        (streaming(ROLE, delta("a"), STOP, USAGE, USAGE, DONE), 7),
    ],
    ids=["at the end", "in each chunk", "with the last text", "twice"],
)
def test_20_a_stream_is_charged_once_what_its_engine_counted(script: Script, tokens: int) -> None:
    """ai-gateway#2239, #2236 (double), llm-d-router#2437, litellm#36168 (dropped)."""

    async def story() -> None:
        async with limited_gateway(script, tenants=acme(tokens_per_minute=1000)) as acmes:
            for asked in (1, 2):
                response = await acmes.chat(stream=True, max_tokens=300)
                assert response.status == 200
                await acmes.setup.settles()
                assert acmes.used().tokens == asked * tokens

    run(story())


def test_20_the_estimate_is_charged_before_and_what_remains_falls() -> None:
    """ai-gateway#2394, #1754."""

    async def story() -> None:
        async with limited_gateway(using(5), tenants=acme(tokens_per_minute=1000, requests_per_minute=9)) as acmes:
            first = (await acmes.chat(max_tokens=100)).headers
            second = (await acmes.chat(max_tokens=100)).headers
            left = [int(headers["x-ratelimit-remaining-tokens"]) for headers in (first, second)]
            assert 1000 - 100 - 30 < left[0] < 900
            assert left[1] < left[0] - 100
            assert [headers["x-ratelimit-remaining-requests"] for headers in (first, second)] == ["8", "7"]
            assert first["x-ratelimit-limit-tokens"] == "1000"
            assert first["x-ratelimit-reset-requests"] in {"1m0s", "1m1s"}

    run(story())


def test_21_who_leaves_in_mid_stream_pays_for_prompt_and_what_was_made() -> None:
    """litellm#36008, #37992: under-billed on disconnect."""

    async def streams(asked: Asked, wire: Wire) -> None:
        await wire.send(STREAM_HEAD + chunk(ROLE) + b"".join(chunk(delta("x")) for _ in range(20)))
        await asked.gone.wait()

    async def story() -> None:
        async with limited_gateway(streams, tenants=acme(tokens_per_minute=1000)) as acmes:
            await acmes.leaves(stream=True, until="content")
            await acmes.setup.settles()
            assert 20 + 10 < acmes.used().tokens < 20 + 30
            assert acmes.used().requests == 1

    run(story())


def test_21_who_leaves_a_prompt_that_is_being_computed_pays_for_the_prompt() -> None:
    async def story() -> None:
        async with limited_gateway(hang, tenants=acme(tokens_per_minute=1000)) as acmes:
            await acmes.leaves(stream=False, until="sent")
            await acmes.setup.settles()
            assert 0 < acmes.used().tokens < 30
            assert acmes.used().requests == 1

    run(story())


def test_21_who_leaves_a_request_without_tokens_has_sent_one_all_the_same() -> None:
    """Else a client that hangs up could have engines tokenize for it as much as it likes."""

    async def story() -> None:
        async with limited_gateway(hang, tenants=acme(requests_per_minute=9, tokens_per_minute=1000)) as acmes:
            await acmes.leaves(stream=False, until="sent", path="/tokenize")
            await acmes.setup.settles()
            assert (acmes.used().requests, acmes.used().tokens) == (1, 0)

    run(story())


def test_21_who_leaves_at_a_refusal_in_a_stream_was_refused_all_the_same() -> None:
    """Clients hang up at an error event, before the stream's end."""

    async def story() -> None:
        async def script(asked: Asked, wire: Wire) -> None:
            refusal = b'data: {"error":{"message":"longer than the context","code":400}}\n\n'
            await wire.send(STREAM_HEAD + chunk(ROLE) + chunk(refusal))
            await asked.gone.wait()

        async with limited_gateway(script, tenants=acme(requests_per_minute=9, tokens_per_minute=1000)) as acmes:
            ended: list[tuple[str, int]] = []
            acmes.setup.gateway.plane.on_end.append(lambda one, outcome, now: ended.append((outcome, one.status)))
            await acmes.leaves(stream=True, until="content")
            await acmes.setup.settles()
            assert acmes.used() == Used()
            assert ended == [("client_error", 400)]

    run(story())


def test_21_an_engine_that_does_not_say_is_charged_the_reservation() -> None:
    async def silent(asked: Asked, wire: Wire) -> None:
        await wire.send(whole(b'{"choices":[]}'))

    async def story() -> None:
        async with limited_gateway(silent, tenants=acme(tokens_per_minute=1000)) as acmes:
            await acmes.chat(max_tokens=100)
            assert 100 + 10 < acmes.used().tokens < 100 + 40

    run(story())


def test_a_refusal_at_the_door_has_nothing_of_the_request_before_it() -> None:
    """Behind an answer comes what is no request: its own id, and no limits, since nobody knows whose it is."""

    async def story() -> None:
        async with limited_gateway(using(10, 1), tenants=acme(requests_per_minute=5)) as one:
            reader, writer = await one.setup.raw()
            body = b'{"model":"m","max_tokens":1}'
            writer.write(
                b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nx-request-id: mine\r\nauthorization: %b\r\n"
                b"content-length: %d\r\n\r\n%bNONSENSE\r\n\r\n" % (BEARER[1].encode(), len(body), body)
            )
            answered, _, refused = (await reader.read()).partition(b"HTTP/1.1 400 ")
            assert b"x-request-id: mine\r\n" in answered and b"x-ratelimit-" in answered
            assert b"x-request-id: kc-" in refused and b"x-ratelimit-" not in refused
            writer.close()

    run(story())


def test_40_a_429_says_which_limit_and_when() -> None:
    """vllm-router#281, litellm#30098, #27823."""

    async def story() -> None:
        async with limited_gateway(using(5), tenants=acme(requests_per_minute=1)) as acmes:
            began = time.monotonic()
            await acmes.chat(max_tokens=5)
            no = await acmes.chat(max_tokens=5)
            passed = time.monotonic() - began
            assert no.status == 429
            detail = error_of(no)
            assert (detail["type"], detail["code"], detail["param"]) == (
                "rate_limit_error",
                "requests_per_minute",
                None,
            )
            assert "may send 1 request in a minute" in detail["message"]
            assert 60 - passed <= int(no.headers["retry-after"]) <= 61
            assert int(no.headers["retry-after"]) * 1000 >= int(no.headers["retry-after-ms"])  # never too early
            assert 60_000 - passed * 1000 <= int(no.headers["retry-after-ms"]) <= 61_000
            assert no.headers["x-ratelimit-remaining-requests"] == "0"
            assert "x-should-retry" not in no.headers
            page = acmes.setup.gateway.plane.telemetry.registry.render()
            assert b'kilocard_limited_total{tenant="acme",reason="requests_per_minute"} 1' in page
            anthropic = await acmes.chat(path="/v1/messages", max_tokens=5)
            assert anthropic.status == 429
            body = json.loads(anthropic.body)
            assert (body["type"], body["error"]["type"]) == ("error", "rate_limit_error")
            assert "retry-after" in anthropic.headers

    run(story())


def test_40_429_is_the_tenants_limit_and_503_our_capacity() -> None:
    async def story() -> None:
        model = ModelSpec("m", {"p": 1}, hold=HoldSpec(0, 0.1))
        tenants = acme(concurrency=2)
        async with limited_gateway(hang, tenants=tenants, model=model, timeouts=HOURS, max_in_flight=1) as acmes:
            first = asyncio.ensure_future(acmes.chat(max_tokens=5))
            await until(lambda: acmes.used().in_flight and acmes.setup.engines[0].asked)
            full = await acmes.chat(max_tokens=5)  # within its limit, and no replica has room
            assert full.status == 503
            assert "retry-after" in full.headers
            assert acmes.used().in_flight == 1
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)

    run(story())


def test_40_a_tenant_over_its_limit_is_no_failure_of_the_cluster() -> None:
    """The share of failures that operators are woken for counts `refused`: it is for 503."""

    async def story() -> None:
        async with limited_gateway(answer, tenants=acme(requests_per_minute=1)) as acmes:
            assert [(await acmes.chat()).status for _ in range(3)] == [200, 429, 429]
            page = acmes.setup.gateway.plane.telemetry.registry.render().decode()
            assert 'kilocard_requests_total{model="m",pool="",outcome="client_error"} 2' in page
            assert 'outcome="refused"' not in page and "kilocard_limited_total" in page

    run(story())


def test_40_a_request_that_can_never_pass_says_so_and_clients_do_not_repeat_it() -> None:
    async def story() -> None:
        async with limited_gateway(using(5), tenants=acme(tokens_per_minute=100)) as acmes:
            async with AsyncOpenAI(base_url=acmes.setup.url + "/v1", api_key=KEY, max_retries=3) as client:
                with pytest.raises(RateLimitError) as caught:
                    await client.chat.completions.create(
                        model="m", messages=[{"role": "user", "content": "hi"}], max_tokens=100
                    )
            assert caught.value.code == "request_exceeds_limit"
            assert caught.value.response.headers["x-should-retry"] == "false"
            assert "retry-after" not in caught.value.response.headers
            page = acmes.setup.gateway.plane.telemetry.registry.render()
            assert b'kilocard_limited_total{tenant="acme",reason="request_exceeds_limit"} 1' in page

    run(story())


@pytest.mark.parametrize("bound", [{"max_tokens": 1}, {}])
def test_what_was_learned_of_dense_prompts_locks_nobody_out(bound: dict[str, int]) -> None:
    """Whom an estimate alone keeps out could never show that it is wrong."""

    async def story() -> None:
        async with limited_gateway(using(10, 1), tenants=acme(tokens_per_minute=300)) as acmes:
            estimates = acmes.setup.gateway.plane.limiting._estimates
            for _ in range(20):
                estimates.learn("acme", "m", 90, 10**6)
            assert estimates.tokens("acme", "m", 90) > 300
            first = await acmes.chat(**bound)
            assert first.status == 200
            assert int(first.headers["x-ratelimit-remaining-tokens"]) == 0, "it runs when nothing else does"
            assert acmes.used().tokens == 11
            assert (await acmes.chat(max_tokens=1)).status == 200, "and what it was is learned at once"
            too_long = await acmes.chat(max_tokens=1, user="x" * 1300)
            assert error_of(too_long)["code"] == "request_exceeds_limit", "by its bytes alone"

    run(story())


def test_each_choice_and_each_prompt_is_reserved() -> None:
    async def story() -> None:
        async with limited_gateway(using(5, 0), tenants=acme(tokens_per_minute=10_000)) as acmes:

            async def reserved(path: str = "/v1/chat/completions", **more: Any) -> int:
                before = 10_000 - acmes.used().tokens
                return before - int((await acmes.chat(path=path, **more)).headers["x-ratelimit-remaining-tokens"])

            assert 100 < await reserved(max_tokens=100) < 140
            assert 300 < await reserved(max_tokens=100, n=3) < 340
            assert 500 < await reserved("/v1/completions", max_tokens=100, best_of=5) < 540
            assert 600 < await reserved("/v1/completions", max_tokens=100, n=2, prompt=["a", "b", "c"]) < 650
            assert 200 < await reserved("/v1/completions", max_tokens=100, prompt=[[1, 2], [3]]) < 250
            assert 100 < await reserved("/v1/completions", max_tokens=100, prompt=[1, 2, 3]) < 150
            assert 300 < await reserved(max_tokens=0, n=300) < 340  # llama.cpp makes one each
            assert 256 < await reserved() < 300  # no bound
            assert 0 < await reserved("/v1/embeddings", input="a text", max_tokens=100) < 50
            assert await reserved("/tokenize", prompt="a text") == 0

    run(story())


def test_the_headers_are_on_every_answer_of_a_limited_tenant_and_of_no_other() -> None:
    fields = {f"x-ratelimit-{what}-{of}" for what in ("limit", "remaining", "reset") for of in ("requests", "tokens")}

    async def story() -> None:
        async def some(asked: Asked, wire: Wire) -> None:
            await (error500 if asked.json.get("fail") else answer)(asked, wire)

        tenants = acme(requests_per_minute=99, tokens_per_minute=9000)
        async with limited_gateway(some, tenants=tenants, model=SHORT_HOLD) as acmes:
            for more in ({}, {"stream": True}, {"fail": 1}, {"fail": 1, "stream": True}):
                response = await acmes.chat(max_tokens=5, **more)
                assert fields <= set(response.headers), (more, response)
            listed = await acmes.setup.post(b"", "/v1/nothing", headers=[BEARER])
            assert not fields & set(listed.headers)
        async with limited_gateway(answer, tenants=acme()) as acmes:
            assert not fields & set((await acmes.chat(max_tokens=5)).headers)
        async with gateway_over(answer) as setup:
            assert not fields & set((await setup.chat()).headers)

    run(story())


def test_limits_of_a_provider_behind_the_gateway_are_not_passed_off_as_the_tenants() -> None:
    async def provider(asked: Asked, wire: Wire) -> None:
        await wire.send(whole(extra=b"X-RateLimit-Limit-Requests: 7\r\nx-other: 1\r\n"))

    async def story() -> None:
        async with limited_gateway(provider, tenants=acme(requests_per_minute=99)) as acmes:
            headers = (await acmes.chat(max_tokens=5)).headers
            assert (headers["x-ratelimit-limit-requests"], headers["x-other"]) == ("99", "1")

    run(story())


def test_state_and_metrics_say_what_is_used_and_left() -> None:
    async def story() -> None:
        tenants = acme(TenantLimits(concurrency=4), tokens_per_minute=1000, tokens_per_day=5000)
        async with limited_gateway(using(5, 6), tenants=tenants) as acmes:
            await acmes.chat(max_tokens=10)
            plane = acmes.setup.gateway.plane
            (entry,) = state(plane, plane.clock(), {})["tenants"]
            assert entry == {
                "id": "acme",
                "in_flight": 0,
                "used_this_minute": 11,
                "limits": [
                    {"limit": "tokens_per_minute", "model": "", "of": 1000, "used": 11},
                    {"limit": "tokens_per_day", "model": "", "of": 5000, "used": 11},
                    {"limit": "concurrency", "model": "m", "of": 4, "used": 0},
                ],
            }
            page = plane.telemetry.registry.render()
            assert b'kilocard_limit_used{tenant="acme",model="",limit="tokens_per_day"} 11' in page
            assert b'kilocard_limit_remaining{tenant="acme",model="m",limit="concurrency"} 4' in page

    run(story())


class Later:
    """A store that is elsewhere: it answers when it is told to."""

    def __init__(self) -> None:
        self.book = Book()
        self.waiting: list[Callable[[], None]] = []

    def reserve(self, ask: Ask, now: float, done: Callable[[Grant | Denied], None]) -> None:
        self.waiting.append(lambda: done(self.book.decide(ask, now)))

    def answer(self) -> None:
        waiting, self.waiting = self.waiting, []
        for reply in waiting:
            reply()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.book, name)


def test_a_store_that_answers_later_lets_in_and_denies() -> None:
    async def story() -> None:
        async with limited_gateway(answer, tenants=acme(requests_per_minute=1)) as acmes:
            later = Later()
            acmes.setup.gateway.plane.limiting.store = later
            both = [asyncio.ensure_future(acmes.chat(stream=stream, max_tokens=5)) for stream in (False, True)]
            await until(lambda: len(later.waiting) == 2)
            assert not acmes.setup.engines[0].asked
            later.answer()
            assert [(await one).status for one in both] == [200, 429]

    run(story())


def test_a_client_that_leaves_before_the_store_answers_costs_nothing() -> None:
    async def story() -> None:
        async with limited_gateway(answer, tenants=acme(requests_per_minute=1)) as acmes:
            later = Later()
            acmes.setup.gateway.plane.limiting.store = later
            await acmes.leaves(stream=True, until="held")
            await acmes.setup.settles()
            later.answer()
            assert acmes.used() == Used()
            assert acmes.setup.gateway.plane.dispatcher.stats.late_events == 0

    run(story())


def test_a_store_that_does_not_answer_is_waited_for_until_the_deadline() -> None:
    async def story() -> None:
        quick = Timeouts(connect=0.5, first_token=0.5, idle=0.5, total=0.3)
        async with limited_gateway(answer, tenants=acme(requests_per_minute=1), timeouts=quick) as acmes:
            later = Later()
            acmes.setup.gateway.plane.limiting.store = later
            late = await acmes.chat(max_tokens=5)
            assert (late.status, error_of(late)["code"]) == (504, "total_timeout")
            later.answer()
            assert acmes.used() == Used()

    run(story())


def test_a_stop_does_not_wait_for_a_store_longer_than_the_drain() -> None:
    async def story() -> None:
        async with limited_gateway(answer, tenants=acme(requests_per_minute=1)) as acmes:
            gateway = acmes.setup.gateway
            later = Later()
            gateway.plane.limiting.store = later
            waiting = asyncio.ensure_future(acmes.chat(max_tokens=5))
            await until(lambda: len(later.waiting) == 1)
            await gateway.plane.close()
            response = await waiting
            assert (response.status, error_of(response)["code"]) == (503, "shutting_down")
            later.answer()
            assert acmes.used() == Used()

    run(story())


def test_a_receipt_stands_beside_the_limits() -> None:
    async def story() -> None:
        async with limited_gateway(answer, tenants=acme(requests_per_minute=9)) as acmes:
            body = {"model": "m", "messages": [], "max_tokens": 5}
            response = await acmes.setup.post(body, headers=[BEARER, ("x-kilocard-receipt", "1")])
            assert {"x-kilocard-receipt", "x-ratelimit-limit-requests"} <= set(response.headers)

    run(story())


def test_21_who_leaves_after_the_last_event_is_charged_what_the_engine_counted() -> None:
    """Anthropic's stream ends with message_stop and has more events than tokens."""

    def said(kind: str, **more: Any) -> bytes:
        return chunk(b"event: %b\ndata: %b\n\n" % (kind.encode(), json.dumps({"type": kind, **more}).encode()))

    async def lingers(asked: Asked, wire: Wire) -> None:
        await wire.send(STREAM_HEAD + said("message_start", message={"usage": {"input_tokens": 7, "output_tokens": 1}}))
        for _ in range(5):
            await wire.send(said("content_block_delta", delta={"text": "x"}))
        await wire.send(said("content_block_stop") + said("message_delta", delta={}, usage={"output_tokens": 3}))
        await wire.send(said("message_stop"))
        await asked.gone.wait()  # the end of the framing never comes

    async def story() -> None:
        async with limited_gateway(lingers, tenants=acme(tokens_per_minute=1000)) as one:
            reader, writer = await one.setup.raw()
            body = json.dumps({"model": "m", "stream": True, "max_tokens": 50, "messages": []}).encode()
            writer.write(
                b"POST /v1/messages HTTP/1.1\r\nhost: x\r\nx-api-key: %b\r\ncontent-length: %d\r\n\r\n%b"
                % (KEY.encode(), len(body), body)
            )
            await reader.readuntil(b'"message_stop"}\n\n\r\n')
            writer.close()
            await one.setup.settles()
            assert one.used().tokens == 7 + 3
            assert b'outcome="ok"} 1' in one.setup.gateway.plane.telemetry.registry.render()

    run(story())
