"""Request bodies and heads: sizes, framing, odd clients, errors in OpenAI's shape."""

from __future__ import annotations

import asyncio
import hashlib
import json

import pytest
from stub_engine import PATIENT, Asked, Wire, answer, gateway_over, hang, run, until, whole

from kilocard.net.client import fetch
from kilocard.spec.model import HoldSpec, Limits, ModelSpec, TenantSpec


def post(body: bytes, path: bytes = b"/v1/chat/completions", extra: bytes = b"") -> bytes:
    return b"POST %b HTTP/1.1\r\nhost: x\r\n%bcontent-length: %d\r\n\r\n%b" % (path, extra, len(body), body)


async def exchange(setup: object, *pieces: bytes) -> tuple[bytes, bytes]:
    """Send raw bytes, read one response: (head, body)."""
    reader, writer = await setup.raw()  # type: ignore[attr-defined]
    for piece in pieces:
        writer.write(piece)
        await asyncio.sleep(0)
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(
        int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")
    )
    body = await reader.readexactly(length)
    writer.close()
    return head, body


@pytest.mark.parametrize("kib", [64, 128, 1024, 8192])
@pytest.mark.parametrize("off", [-1, 0, 1])
def test_7_no_size_cliff(kib: int, off: int) -> None:
    """GIE#854: 500 beyond 128 KB; ai-gateway#827: 413 at 32,769 bytes."""
    frame = b'{"model":"m","prompt":""}'
    body = frame.replace(b'""', b'"' + b"x" * (kib * 1024 + off - len(frame)) + b'"')

    async def story() -> None:
        async with gateway_over(answer, timeouts=PATIENT) as setup:
            assert (await setup.post(body, "/v1/completions")).status == 200
            assert setup.engines[0].asked[0].body == body

    run(story())


def test_7_the_cap_is_said_in_the_413() -> None:
    async def story() -> None:
        async with gateway_over(answer, limits=Limits(body=1000)) as setup:
            for extra in (b"", b"expect: 100-continue\r\n"):
                head, body = await exchange(setup, post(b"x" * 1001, extra=extra))
                error = json.loads(body)["error"]
                assert head.startswith(b"HTTP/1.1 413") and b"connection: close" in head
                assert "1000 bytes" in error["message"] and error["code"] == "body_too_large"
            chunked = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
            head, _ = await exchange(setup, chunked, *[b"100\r\n" + b"y" * 256 + b"\r\n"] * 5)
            assert head.startswith(b"HTTP/1.1 413")
            assert not setup.engines[0].asked

    run(story())


def test_7_all_buffered_bytes_together_are_bounded() -> None:
    async def story() -> None:
        async with gateway_over(hang, limits=Limits(buffered=3000), timeouts=PATIENT) as setup:
            body = json.dumps({"model": "m", "prompt": "x" * 1000}).encode()
            waiting = [asyncio.ensure_future(setup.post(body, "/v1/completions")) for _ in range(2)]
            await until(lambda: len(setup.engines[0].asked) == 2)
            head, answer_body = await exchange(setup, post(body))
            assert head.startswith(b"HTTP/1.1 503") and b"retry-after:" in head
            assert json.loads(answer_body)["error"]["code"] == "buffers_full"
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    run(story())


def test_expect_continue_and_chunked_uploads_work() -> None:
    async def story() -> None:
        async with gateway_over(answer) as setup:
            reader, writer = await setup.raw()
            writer.write(
                b"POST /v1/completions HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\n"
                b"transfer-encoding: chunked\r\n\r\n"
            )
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            writer.write(b'8\r\n{"model"\r\n5;x=y\r\n:"m"}\r\n0\r\n\r\n')
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
            asked = setup.engines[0].asked[0]
            assert asked.body == b'{"model":"m"}'
            assert asked.headers["content-length"] == "13"
            assert "transfer-encoding" not in asked.headers and "expect" not in asked.headers
            writer.close()

    run(story())


def test_6_hop_by_hop_headers_stay_in_their_hop() -> None:
    async def chatty(asked: Asked, wire: Wire) -> None:
        extra = b"connection: keep-alive, x-secret-hop\r\nx-secret-hop: 1\r\nserver: uvicorn\r\nx-model-time: 7\r\n"
        await wire.send(whole(extra=extra + b"keep-alive: timeout=5\r\n"))

    async def story() -> None:
        async with gateway_over(chatty) as setup:
            extra = b"connection: x-mine\r\nx-mine: 1\r\nte: trailers\r\nx-keep: yes\r\nauthorization: Bearer k\r\n"
            head, _ = await exchange(setup, post(b'{"model":"m"}', extra=extra + b"x-forwarded-for: 1.2.3.4\r\n"))
            sent = setup.engines[0].asked[0].headers
            assert not {"x-mine", "te", "connection", "x-forwarded-for", "accept-encoding"} & set(sent)
            assert sent["x-keep"] == "yes" and sent["authorization"] == "Bearer k"
            assert sent["host"] == setup.engines[0].url.removeprefix("http://")
            lower = head.lower()
            assert b"x-model-time: 7" in lower
            assert not any(name in lower for name in (b"x-secret-hop", b"server:", b"keep-alive:"))
            assert lower.count(b"content-length") == 1

    run(story())


@pytest.mark.parametrize(
    ("body", "code"),
    [(b"{bad", "invalid_json"), (b"", "empty_body"), (b"[]", "invalid_json"), (b'{"model":3}', "invalid_model")],
)
def test_13_malformed_bodies_are_400_in_openais_shape(body: bytes, code: str) -> None:
    async def story() -> None:
        async with gateway_over(answer) as setup:
            response = await setup.post(body)
            error = json.loads(response.body)["error"]
            assert response.status == 400 and error["code"] == code and error["type"] == "invalid_request_error"
            assert not setup.engines[0].asked

    run(story())


def test_numbers_of_any_length_are_the_engines_to_judge() -> None:
    async def story() -> None:
        async with gateway_over(answer) as setup:
            for key in (b"max_tokens", b"max_completion_tokens", b"max_output_tokens", b"n_predict", b"n", b"best_of"):
                for number in (b"9" * 400, b'"' + b"9" * 400 + b'"', b"-" + b"9" * 400, b"1e308", b"-1e308", b"0.0"):
                    for stream in (b"false", b"true"):
                        body = b'{"model":"m","messages":[],"%b":%b,"stream":%b}' % (key, number, stream)
                        assert (await setup.post(body)).status == 200, body
            assert setup.engines[0].asked[0].json["max_tokens"] == int("9" * 400)
            assert await setup.settles()

    run(story())


def test_13_anthropic_clients_get_anthropics_shape() -> None:
    async def story() -> None:
        async with gateway_over(answer) as setup:
            response = await setup.post({"model": "nope"}, "/v1/messages")
            assert response.status == 404
            assert json.loads(response.body)["type"] == "error"
            assert json.loads(response.body)["error"]["type"] == "not_found_error"

    run(story())


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"GARBAGE\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello!", 400),
        (b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nhost: x\r\nx: a\r\n b\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nhost : x\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nhost: x\r\nx: " + b"y" * 70_000 + b"\r\n\r\n", 431),
        (b"GET /nothing HTTP/1.1\r\nhost: x\r\n\r\n", 404),
        (b"GET /v1/chat/completions HTTP/1.1\r\nhost: x\r\n\r\n", 405),
        (b"DELETE /v1/models HTTP/1.1\r\nhost: x\r\n\r\n", 404),
        (b"POST /../admin HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n", 404),
        (b"GET http://evil.example/v1/models HTTP/1.1\r\nhost: evil\r\n\r\n", 200),
    ],
)
def test_odd_requests_get_a_clear_answer(raw: bytes, status: int) -> None:
    async def story() -> None:
        async with gateway_over(answer) as setup:
            head, body = await exchange(setup, raw)
            assert head.startswith(b"HTTP/1.1 %d" % status), head
            assert json.loads(body)
            assert not setup.engines[0].asked

    run(story())


def test_pipelined_requests_are_answered_in_order() -> None:
    async def numbered(asked: Asked, wire: Wire) -> None:
        await asyncio.sleep(0.05 if asked.json["n"] == 0 else 0)
        await wire.send(whole(b'{"n":%d}' % asked.json["n"]))

    async def story() -> None:
        async with gateway_over(numbered) as setup:
            reader, writer = await setup.raw()
            both = post(b'{"model":"m","n":0}') + post(b'{"model":"m","n":1}')
            writer.write(both + b"GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n" + post(b'{"model":"m","n":2}'))
            data = b""
            while data.count(b"HTTP/1.1 200") < 4 or not data.endswith(b'{"n":2}'):
                data += await reader.read(65536)
            assert data.index(b'{"n":0}') < data.index(b'{"n":1}') < data.index(b'"list"') < data.index(b'{"n":2}')
            writer.close()

    run(story())


def test_who_expects_continue_behind_another_request_gets_it_when_that_has_its_answer() -> None:
    async def slow(asked: Asked, wire: Wire) -> None:
        await asyncio.sleep(0.1)
        await answer(asked, wire)

    async def story() -> None:
        async with gateway_over(slow) as setup:
            reader, writer = await setup.raw()
            body = b'{"model":"m"}'
            whole_request = post(body, extra=b"expect: 100-continue\r\n")
            writer.write(post(body) + whole_request[: -len(body)])
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200")
            await reader.readexactly(int(head.split(b"content-length: ")[1].split(b"\r\n")[0]))
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            writer.write(body)
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
            writer.close()

    run(story())


def test_a_long_pipeline_is_a_loop_not_a_tower_of_calls() -> None:
    async def slow(asked: Asked, wire: Wire) -> None:
        await asyncio.sleep(0.2)
        await answer(asked, wire)

    async def story() -> None:
        async with gateway_over(slow) as setup:
            reader, writer = await setup.raw()
            writer.write(post(b'{"model":"m"}') + b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n" * 3000)
            data = b""
            while data.count(b'{"status":"ok"}') < 3000:
                piece = await reader.read(1 << 20)
                assert piece, "cut off"
                data += piece
            assert data.count(b"HTTP/1.1 200") == 3001
            writer.close()

    run(story())


def test_39_models_are_listed_whoever_is_down() -> None:
    """vllm-router#135: /v1/models was 500 while any worker was down."""

    async def story() -> None:
        async with gateway_over(answer) as setup:
            await setup.engines[0].stop()
            reader, writer = await setup.raw()
            writer.write(b"GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200")
            writer.close()

    run(story())


def test_41_upstream_ids_are_minted_and_the_clients_is_echoed() -> None:
    """vllm#10583: two requests with one id collide in the engine."""

    async def story() -> None:
        async with gateway_over(answer) as setup:
            for _ in range(3):
                response = await setup.chat()
                assert response.headers["x-request-id"]
            for _ in range(2):
                response = await setup.post({"model": "m"}, headers=[("x-request-id", "mine-7")])
                assert response.headers["x-request-id"] == "mine-7"
            ids = [asked.headers["x-request-id"] for asked in setup.engines[0].asked]
            assert len(set(ids)) == 5 and "mine-7" not in ids
            response = await setup.post({"model": "m"}, headers=[("x-request-id", "x" * 500)])
            assert response.headers["x-request-id"].startswith("kc-")

    run(story())


def test_40_no_capacity_is_503_with_retry_after() -> None:
    async def story() -> None:
        model = ModelSpec("m", {"p": 1}, hold=HoldSpec(0, 1.0))
        async with gateway_over(hang, model=model, timeouts=PATIENT, max_in_flight=1) as setup:
            first = asyncio.ensure_future(setup.chat())
            await until(lambda: setup.engines[0].asked)
            response = await setup.chat()
            assert response.status == 503 and int(response.headers["retry-after"]) >= 1
            assert json.loads(response.body)["error"]["code"] == "hold_full"
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)

    run(story())


def test_unknown_models_never_become_labels() -> None:
    """mt-05: a client's model name must not reach our metrics page."""

    async def story() -> None:
        async with gateway_over(answer) as setup:
            response = await setup.post({"model": 'evil"\n\u2028x'})
            assert response.status == 404
            page = setup.gateway.plane.telemetry.registry.render()
            assert b"evil" not in page and b'model="other"' in page

    run(story())


def test_multipart_requests_are_routed_by_their_model_field() -> None:
    async def story() -> None:
        async with gateway_over(answer_any, served_model_name="whisper-engine") as setup:
            mark = "xyz123"
            body = (
                f'--{mark}\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\nRIFF\x00\r\n'
                f'--{mark}\r\nContent-Disposition: form-data; name="model"\r\n\r\nm\r\n--{mark}--\r\n'
            ).encode()
            head, _ = await exchange(
                setup,
                post(body, b"/v1/audio/transcriptions", b"content-type: multipart/form-data; boundary=xyz123\r\n"),
            )
            assert head.startswith(b"HTTP/1.1 200")
            assert b'name="model"\r\n\r\nwhisper-engine\r\n' in setup.engines[0].asked[0].body

    async def answer_any(asked: Asked, wire: Wire) -> None:
        await wire.send(whole(b'{"text":"hi"}'))

    run(story())


def test_a_model_may_be_left_out_where_there_is_only_one() -> None:
    async def story() -> None:
        async with gateway_over(answer) as setup:
            assert (await setup.post({"prompt": "x"}, "/tokenize")).status == 200
            assert setup.engines[0].asked[0].json["model"] == "m"

    run(story())


def test_slow_loris_is_shown_the_door() -> None:
    async def story() -> None:
        async with gateway_over(answer, limits=Limits(client_idle=0.5, keep_alive=1.0)) as setup:
            reader, writer = await setup.raw()
            writer.write(b"POST /v1/completions HTTP/1.1\r\nhost")
            assert (await reader.read()).startswith(b"HTTP/1.1 408")
            idle, idle_writer = await setup.raw()
            assert await idle.read() == b""
            writer.close()
            idle_writer.close()

    run(story())


def test_keys_are_asked_for_checked_and_kept_from_the_engines() -> None:
    key = "sk-team-a"
    tenants = {
        "team-a": TenantSpec("team-a", keys=("sha256:" + hashlib.sha256(key.encode()).hexdigest(),), models=("m",)),
        "team-b": TenantSpec("team-b", keys=("sha256:" + hashlib.sha256(b"sk-b").hexdigest(),), models=("other",)),
    }

    async def story() -> None:
        async with gateway_over(answer, tenants=tenants) as setup:
            for headers, status, code in (
                ([], 401, "missing_api_key"),
                ([("authorization", "Bearer sk-wrong")], 401, "invalid_api_key"),
                ([("authorization", "Bearer sk-b")], 403, "model_not_allowed"),
            ):
                response = await setup.post({"model": "m"}, headers=headers)
                assert (response.status, json.loads(response.body)["error"]["code"]) == (status, code)
            assert not setup.engines[0].asked
            for header in (("authorization", f"Bearer {key}"), ("x-api-key", key)):
                assert (await setup.post({"model": "m"}, headers=[header])).status == 200
                assert not {"authorization", "x-api-key"} & set(setup.engines[0].asked[-1].headers)
            listed = await fetch(setup.url + "/v1/models", headers=[("authorization", "Bearer sk-b")], timeout=20)
            assert json.loads(listed.body)["data"] == []
            assert (await fetch(setup.url + "/v1/models", timeout=20)).status == 401

    run(story())
