"""Streams through the gateway: bytes, timing, usage, faults in the middle. Numbers name the items of
docs/faults-of-others.md."""

from __future__ import annotations

import asyncio
import json

import pytest
from stub_engine import (
    DONE,
    END,
    JSON_ANSWER,
    PATIENT,
    ROLE,
    STOP,
    STREAM_HEAD,
    USAGE,
    Asked,
    Wire,
    answer,
    chunk,
    delta,
    die,
    error500,
    first_then,
    gateway_over,
    hang,
    run,
    stands_still,
    times_asked,
    until,
    whole,
)

from kilocard.spec.model import GatewaySpec, ModelSpec, Timeouts

TEXT = ROLE + delta("he") + delta("读🙂") + delta('"usage": [DONE]') + STOP


def test_an_answer_comes_back_whole() -> None:
    async def story() -> None:
        async with gateway_over(answer) as setup:
            response = await setup.chat()
            assert response.status == 200 and response.body == JSON_ANSWER
            assert "server" not in response.headers and "x-request-id" in response.headers

    run(story())


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100, 100_000])
def test_2_3_bytes_pass_unchanged_however_they_are_cut(size: int) -> None:
    """2, 3: UTF-8 and events split over chunks; here every chunk has `size` bytes, and so has every TCP write."""

    async def pieces(asked: Asked, wire: Wire) -> None:
        data = TEXT + DONE
        await wire.send(STREAM_HEAD)
        for at in range(0, len(data), size):
            await wire.send(chunk(data[at : at + size]))
            await asyncio.sleep(0)
        await wire.send(END)

    async def story() -> None:
        async with gateway_over(pieces) as setup:
            response = await setup.chat(stream=True)
            assert response.body == TEXT + DONE

    run(story())


def test_3_one_write_per_byte_of_the_whole_response() -> None:
    async def bytewise(asked: Asked, wire: Wire) -> None:
        for byte in STREAM_HEAD + chunk(TEXT) + chunk(DONE) + END:
            await wire.send(bytes([byte]))
            await asyncio.sleep(0)

    async def story() -> None:
        async with gateway_over(bytewise) as setup:
            assert (await setup.chat(stream=True)).body == TEXT + DONE

    run(story())


def test_4_data_without_a_space_still_counts_usage() -> None:
    async def odd(asked: Asked, wire: Wire) -> None:
        body = b'data:{"choices":[{"delta":{"content":"x"}}]}\r\n\r\n: note\r\n\r\n'
        body += b'data:{"choices":[],\r\ndata:"usage":{"prompt_tokens":11,"completion_tokens":22}}\r\n\r\n'
        await wire.send(STREAM_HEAD + chunk(body) + END)

    async def story() -> None:
        async with gateway_over(odd) as setup:
            await setup.chat(stream=True)
            page = setup.gateway.plane.telemetry.registry.render()
            assert b'kilocard_prompt_tokens_total{model="m"} 11' in page
            assert b'kilocard_generation_tokens_total{model="m"} 22' in page

    run(story())


def test_5_done_inside_the_text_does_not_end_the_stream() -> None:
    async def tricky(asked: Asked, wire: Wire) -> None:
        await wire.send(STREAM_HEAD + chunk(delta("data: [DONE]\n\n")))
        await asyncio.sleep(0.05)
        await wire.send(chunk(delta("more")) + chunk(DONE) + END)

    async def story() -> None:
        async with gateway_over(tricky) as setup:
            body = (await setup.chat(stream=True)).body
            assert b"more" in body and body.endswith(DONE)

    run(story())


def test_10_each_chunk_is_passed_on_at_once() -> None:
    """dstack#4269: a 16 KB buffer held 247-byte chunks for 16 s. Here none is sent before the client has the last."""
    has = asyncio.Semaphore(0)

    async def waits(asked: Asked, wire: Wire) -> None:
        await wire.send(STREAM_HEAD)
        for number in range(10):
            await has.acquire()  # at first the head, which must not wait for the first token
            await wire.send(chunk(delta(f"{number}" + "x" * 170)))
        await has.acquire()
        await wire.send(END)

    async def story() -> None:
        async with gateway_over(waits, timeouts=PATIENT) as setup:
            reader, writer = await setup.raw()
            body = json.dumps({"model": "m", "stream": True}).encode()
            writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\naccept-encoding: gzip\r\n")
            writer.write(b"content-length: %d\r\n\r\n" % len(body) + body)
            head = await reader.readuntil(b"\r\n\r\n")
            has.release()
            assert b"x-accel-buffering: no" in head and b"cache-control: no-cache" in head
            assert b"content-encoding" not in head.lower()
            for number in range(10):
                line = await reader.readuntil(b"\n\n\r\n")
                assert b'"content": "%dx' % number in line
                has.release()
            await reader.readuntil(b"0\r\n\r\n")
            writer.close()

    run(story())


def test_21_usage_is_asked_for_and_hidden_again() -> None:
    async def story() -> None:
        async with gateway_over(answer) as setup:
            response = await setup.chat(stream=True)
            asked = setup.engines[0].asked[0].json
            assert asked["stream_options"] == {"include_usage": True}
            assert USAGE not in response.body and response.body.endswith(DONE)
            page = setup.gateway.plane.telemetry.registry.render()
            assert b'kilocard_generation_tokens_total{model="m"} 2' in page

    run(story())


def test_21_usage_that_the_client_asked_for_stays() -> None:
    async def story() -> None:
        async with gateway_over(answer) as setup:
            response = await setup.chat(stream=True, stream_options={"include_usage": True})
            assert USAGE in response.body

    run(story())


def test_21_tokens_are_counted_when_the_client_leaves() -> None:
    async def endless(asked: Asked, wire: Wire) -> None:
        await wire.send(STREAM_HEAD + chunk(ROLE))
        for _ in range(5):
            await wire.send(chunk(delta("x")))
            await asyncio.sleep(0.01)
        await asked.gone.wait()

    async def story() -> None:
        async with gateway_over(endless) as setup:
            reader, writer = await setup.raw()
            body = json.dumps({"model": "m", "stream": True}).encode()
            writer.write(
                b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body) + body
            )
            for _ in range(5):
                await reader.readuntil(b"\n\n\r\n")
            writer.close()
            await setup.settles()
            page = setup.gateway.plane.telemetry.registry.render()
            assert b'kilocard_generation_tokens_total{model="m"} 5' in page
            assert b'outcome="client_gone"} 1' in page

    run(story())


def test_12_a_stream_that_dies_ends_with_an_error_event_and_no_done() -> None:
    async def dies(asked: Asked, wire: Wire) -> None:
        await wire.send(STREAM_HEAD + chunk(ROLE) + chunk(delta("Hel")) + chunk(delta("lo")))
        await asyncio.sleep(0.05)
        await wire.send(b"40\r\ndata: {" + b"x" * 10)
        wire.reset()

    async def story() -> None:
        async with gateway_over(dies, dies) as setup:
            response = await setup.chat(stream=True)
            events = response.body.split(b"\n\n")
            assert events[:3] == (ROLE + delta("Hel") + delta("lo")).split(b"\n\n")[:3]
            error = json.loads(events[3].removeprefix(b"data: "))["error"]
            assert error["code"] == "reset" and error["type"] == "upstream_error"
            assert b"[DONE]" not in response.body
            assert sum(len(engine.asked) for engine in setup.engines) == 1, "no retry after the first content"

    run(story())


@pytest.mark.parametrize(
    "event",
    [
        b'data: {"error":{"message":"EngineDeadError","code":500}}\n\n',
        b'data:{"error":{"message":"EngineDeadError","code":500}}\n\n',
        b'event: error\ndata: {"type":"error","error":{"type":"api_error","message":"dead"}}\n\n',
    ],
)
def test_12_an_error_event_after_content_is_passed_on_and_held_against_the_replica(event: bytes) -> None:
    async def breaks(asked: Asked, wire: Wire) -> None:
        await wire.send(STREAM_HEAD + chunk(ROLE))
        for piece in (delta("a" * 40), delta("b" * 40), event):
            await wire.send(chunk(piece))
            await asyncio.sleep(0.01)
        await wire.send(END)

    async def story() -> None:
        async with gateway_over(breaks) as setup:
            assert (await setup.chat(stream=True)).body.endswith(event)
            page = setup.gateway.plane.telemetry.registry.render()
            assert b'outcome="upstream_error"} 1' in page

    run(story())


@pytest.mark.parametrize("null", [True, False])
def test_21_usage_in_every_chunk_is_read_to_the_last(null: bool) -> None:
    """OpenAI and SGLang write "usage":null in each; vLLM's continuous_usage_stats writes numbers."""

    async def continuous(asked: Asked, wire: Wire) -> None:
        await wire.send(STREAM_HEAD + chunk(ROLE))
        for count in range(1, 6):
            usage = None if null else {"prompt_tokens": 5, "completion_tokens": count}
            event = json.dumps({"choices": [{"delta": {"content": "x" * 40}}], "usage": usage}, separators=(",", ":"))
            await wire.send(chunk(b"data: " + event.encode() + b"\n\n"))
            await asyncio.sleep(0.005)
        last = b'data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":9}}\n\n' if null else b""
        await wire.send((chunk(last) if last else b"") + chunk(DONE) + END)

    async def story() -> None:
        async with gateway_over(continuous) as setup:
            await setup.chat(stream=True)
            page = setup.gateway.plane.telemetry.registry.render()
            assert b'kilocard_generation_tokens_total{model="m"} %d' % (9 if null else 5) in page

    run(story())


@pytest.mark.parametrize("where", ["connect", "before_head", "after_head", "after_role", "error_event", "status_500"])
def test_12_before_the_first_content_another_replica_takes_over(where: str) -> None:
    """litellm#28216, gw-19, gw-20: the client sees one clean answer, never two beginnings."""

    async def sick(asked: Asked, wire: Wire) -> None:
        if where == "status_500":
            await error500(asked, wire)
            return
        if where == "error_event":
            await wire.send(STREAM_HEAD + chunk(b'data: {"error":{"message":"EngineDeadError","code":500}}\n\n'))
            await wire.send(chunk(DONE) + END)
            return
        if where != "before_head":
            await wire.send(STREAM_HEAD)
        if where == "after_role":
            await wire.send(chunk(ROLE.replace(b'"c"', b'"first"')))
        await asyncio.sleep(0.02)
        wire.reset()

    async def story() -> None:
        async with gateway_over(sick, answer) as setup:
            if where == "connect":
                await setup.engines[0].stop()
            for _ in range(6):
                response = await setup.chat(stream=True)
                assert response.status == 200
                assert response.body == ROLE + delta("hel") + delta("lo") + STOP + DONE
            assert len(setup.engines[1].asked) == 6

    run(story())


def test_8_four_timeouts_each_with_its_name() -> None:
    """litellm#19909: a stream's time-out is not its first token's, nor its total."""

    async def stalls(asked: Asked, wire: Wire) -> None:
        await wire.send(STREAM_HEAD + chunk(ROLE) + chunk(delta("x")))
        await asked.gone.wait()

    async def trickles(asked: Asked, wire: Wire) -> None:
        await wire.send(STREAM_HEAD + chunk(ROLE))
        while not asked.gone.is_set():
            await wire.send(chunk(delta("x")))
            await asyncio.sleep(0.05)

    limits = Timeouts(connect=5, first_token=1.0, first_token_per_prompt_token=0, idle=1.0, total=3.0)

    async def story() -> None:
        async with gateway_over(hang, timeouts=limits) as setup:
            response = await setup.chat(max_tokens=1)
            assert (response.status, json.loads(response.body)["error"]["code"]) == (504, "first_token_timeout")
            await until(setup.engines[0].asked[0].gone.is_set)
        async with gateway_over(stalls, timeouts=limits) as setup:
            response = await setup.chat(stream=True)
            assert b'"idle_timeout"' in response.body and b"[DONE]" not in response.body
        async with gateway_over(trickles, timeouts=limits) as setup:
            response = await setup.chat(stream=True)
            assert b'"total_timeout"' in response.body

    run(story())


@pytest.mark.parametrize("dies", [False, True], ids=["hangs", "dies"])
def test_a_replica_that_fails_after_done_has_said_all(dies: bool) -> None:
    """Frozen or dead between [DONE] and the end of its framing: no error event comes behind [DONE]."""

    async def story() -> None:
        async def script(asked: Asked, wire: Wire) -> None:
            await wire.send(STREAM_HEAD + chunk(ROLE) + chunk(delta("hel")) + chunk(STOP) + chunk(DONE))
            if dies:
                await asyncio.sleep(0.1)
                wire.reset()
            else:
                await asked.gone.wait()

        async with gateway_over(script, timeouts=Timeouts(idle=0.4)) as setup:
            response = await setup.chat(stream=True)
            assert response.status == 200 and response.body == ROLE + delta("hel") + STOP + DONE
            page = setup.gateway.plane.telemetry.registry.render().decode()
            assert 'outcome="ok"} 1' in page

    run(story())


FAILURE = b'data: {"error":{"message":"no memory","code":500}}'


@pytest.mark.parametrize(
    "said",
    [b": ping\n\n" + FAILURE + b"\n\n", ROLE + b": ping\n\n" + FAILURE + b"\n\n", FAILURE + b"\n", ROLE + FAILURE],
    ids=["behind a comment", "behind preamble and comment", "without a blank line", "without any line end"],
)
def test_12_an_early_error_event_is_seen_however_it_is_packed(said: bytes) -> None:
    async def story() -> None:
        async def script(asked: Asked, wire: Wire) -> None:
            await wire.send(STREAM_HEAD + chunk(said) + END)

        turns = ModelSpec("m", {"p": 1}, policy="round_robin")
        async with gateway_over(script, answer, model=turns) as setup:
            for _ in range(2):  # one begins at either replica
                response = await setup.chat(stream=True)
                assert response.status == 200 and response.body.endswith(DONE)
                assert b"error" not in response.body
            assert setup.engines[0].asked, "the one that fails was never asked"

    run(story())


@pytest.mark.parametrize("said", [ROLE + FAILURE + b"\n\n" + DONE, b"event: error\r\n" + FAILURE], ids=["vllm", "cut"])
def test_12_where_nobody_does_better_the_engines_own_error_event_is_the_answer(said: bytes) -> None:
    """As with a whole 500: "the replica answered with an error" would hide why from everybody."""

    async def script(asked: Asked, wire: Wire) -> None:
        await wire.send(STREAM_HEAD + chunk(said) + END)

    async def story() -> None:
        async with gateway_over(script, script) as setup:
            response = await setup.chat(stream=True)
            event = said[said.index(FAILURE) :].splitlines()[0]
            first = b"event: error\r\n" if said.startswith(b"event") else b""
            assert response.status == 200 and response.body == first + event + b"\n\n"
            assert all(engine.asked for engine in setup.engines)

    run(story())


def test_12_a_response_that_failed_was_created_before() -> None:
    """OpenAI's helper for Responses takes no other event first."""
    created = b'event: response.created\ndata: {"type":"response.created","response":{"id":"r"}}\n\n'
    reason = b'{"type":"response.failed","response":{"id":"r","error":{"code":"server_error","message":"CUDA"}}}'
    failed = b"event: response.failed\ndata: " + reason + b"\n\n"

    async def script(asked: Asked, wire: Wire) -> None:
        await wire.send(STREAM_HEAD + chunk(created + failed) + END)

    async def story() -> None:
        async with gateway_over(script, script) as setup:
            response = await setup.post({"model": "m", "input": "hi", "stream": True}, "/v1/responses")
            assert response.body == created + failed
            assert all(engine.asked for engine in setup.engines)

    run(story())


async def fails_early(asked: Asked, wire: Wire) -> None:
    await wire.send(STREAM_HEAD + chunk(FAILURE + b"\n\n") + END)


def test_12_an_error_event_of_before_is_not_the_answer_where_the_last_attempt_failed_otherwise() -> None:
    script = first_then(fails_early, die)

    async def story() -> None:
        async with gateway_over(script, script) as setup:
            body = (await setup.chat(stream=True)).body
            assert times_asked(setup) == 2
            assert body.startswith(b"data: ") and json.loads(body[6:])["error"]["code"] == "reset"

    run(story())


def test_12_nor_is_it_where_the_gateway_ends_the_next_attempt() -> None:
    script = first_then(fails_early, hang)

    async def story() -> None:
        async with gateway_over(script, script, timeouts=PATIENT) as setup:
            asking = asyncio.ensure_future(setup.chat(stream=True))
            await until(lambda: times_asked(setup) == 2)
            for exchange in list(setup.gateway.plane.exchanges.values()):
                exchange.shut_down()
            body = (await asking).body
            assert body.startswith(b"data: ") and json.loads(body[6:])["error"]["code"] == "shutting_down"

    run(story())


def test_12_a_done_behind_an_early_error_is_not_the_end_of_the_next_replicas_stream() -> None:
    """vLLM says [DONE] behind its error event too: the second replica that dies has not said all for that."""

    async def says_done(asked: Asked, wire: Wire) -> None:
        await wire.send(STREAM_HEAD + chunk(b'data: {"error":{"message":"dead","code":500}}\n\n' + DONE) + END)

    async def dies_half_way(asked: Asked, wire: Wire) -> None:
        await wire.send(STREAM_HEAD + chunk(ROLE + delta("half")))
        await asyncio.sleep(0.02)
        wire.reset()

    script = first_then(says_done, dies_half_way)

    async def story() -> None:
        async with gateway_over(script, script) as setup:
            body = (await setup.chat(stream=True)).body
            assert times_asked(setup) == 2
            assert body.startswith(ROLE + delta("half") + b'data: {"error"') and DONE not in body

    run(story())


@pytest.mark.parametrize("behind", [b": bye\n\n", delta("more")])
def test_a_replica_that_fails_behind_what_it_says_after_done_has_said_all(behind: bytes) -> None:
    async def story() -> None:
        async def script(asked: Asked, wire: Wire) -> None:
            await wire.send(STREAM_HEAD + chunk(ROLE + delta("hel")) + chunk(DONE))
            await wire.send(chunk(behind))
            await asyncio.sleep(0.1)
            wire.reset()

        async with gateway_over(script) as setup:
            response = await setup.chat(stream=True)
            assert response.body == ROLE + delta("hel") + DONE + behind

    run(story())


def test_8_a_hung_replica_does_not_slow_the_others() -> None:
    async def story() -> None:
        async with gateway_over(hang, answer, answer, timeouts=Timeouts(first_token=60, total=60)) as setup:
            stuck = [asyncio.ensure_future(setup.chat()) for _ in range(3)]
            await asyncio.sleep(0.1)
            more = [asyncio.ensure_future(setup.chat()) for _ in range(20)]
            # only what went to the hung replica waits
            await until(lambda: sum(task.done() for task in more) >= 20 - 20 // 3)
            for task in (*stuck, *more):
                task.cancel()
            await asyncio.gather(*stuck, *more, return_exceptions=True)

    run(story())


def test_9_the_first_token_limit_grows_with_the_prompt() -> None:
    async def slow(asked: Asked, wire: Wire) -> None:
        await asyncio.sleep(0.8)
        await answer(asked, wire)

    limits = Timeouts(first_token=0.3, first_token_per_prompt_token=0.001, total=10)

    async def story() -> None:
        async with gateway_over(slow, timeouts=limits) as setup:
            short = await setup.post({"model": "m", "max_tokens": 1, "prompt": "x"}, "/v1/completions")
            long = await setup.post({"model": "m", "max_tokens": 1, "prompt": "x" * 8000}, "/v1/completions")
            assert (short.status, long.status) == (504, 200)

    run(story())


def test_9_an_answer_that_is_not_streamed_has_time_for_all_its_tokens() -> None:
    """It comes when its last token is made: `first_token` alone would call a long answer a hung replica."""

    async def thinks(asked: Asked, wire: Wire) -> None:
        await asyncio.sleep(0.8)
        await answer(asked, wire)

    limits = Timeouts(first_token=0.3, first_token_per_prompt_token=0, per_output_token=0.01, total=10)

    async def story() -> None:
        async with gateway_over(thinks, timeouts=limits) as setup:
            assert (await setup.chat(max_tokens=300)).status == 200
            assert (await setup.chat()).status == 200, "no limit given: only `total` bounds it"
            assert (await setup.chat(max_tokens=10)).status == 504
            assert (await setup.post({"model": "m", "input": "x"}, "/v1/embeddings")).status == 504

    run(story())


def test_9_comments_keep_a_waiting_stream_alive_where_asked_for() -> None:
    async def slow(asked: Asked, wire: Wire) -> None:
        await asyncio.sleep(0.7)
        await answer(asked, wire)

    async def refuses(asked: Asked, wire: Wire) -> None:
        await asyncio.sleep(0.5)
        await wire.send(whole(b'{"error":{"message":"too long"}}', "400 Bad Request"))

    async def story() -> None:
        async with gateway_over(slow, gateway=GatewaySpec(keep_alive_comment=0.2)) as setup:
            body = (await setup.chat(stream=True)).body
            assert body.startswith(b": keep-alive\n\n") and body.endswith(DONE)
            assert (await setup.chat()).body == JSON_ANSWER, "only streams"
        async with gateway_over(refuses, gateway=GatewaySpec(keep_alive_comment=0.2)) as setup:
            body = (await setup.chat(stream=True)).body
            assert body.endswith(b'data: {"error":{"message":"too long"}}\n\n')

    run(story())


@pytest.mark.parametrize(
    ("status", "path", "said", "event"),
    [
        ("500 X", "/v1/chat/completions", b'{"error":{\n"message":"CUDA"}}', b'data: {"error":{"message":"CUDA"}}'),
        ("500 X", "/v1/chat/completions", b"<h1>Oops</h1>", b"the replica answered with an error"),
        ("400 X", "/v1/messages", b'{"type":"error","error":{}}', b'event: error\ndata: {"type":"error","error":{}}'),
        ("500 X", "/v1/messages", b'{"type":"error","error":{}}', b'event: error\ndata: {"type":"error","error":{}}'),
    ],
)
def test_9_behind_comments_an_engines_error_is_an_event_that_clients_know(
    status: str, path: str, said: bytes, event: bytes
) -> None:
    """Anthropic's clients look at an event's name."""
    commented = asyncio.Event()

    async def refuses(asked: Asked, wire: Wire) -> None:
        await commented.wait()
        await wire.send(whole(said, status))

    async def story() -> None:
        gateway = GatewaySpec(keep_alive_comment=0.1)
        async with gateway_over(refuses, gateway=gateway, timeouts=PATIENT) as setup:
            reader, writer = await setup.raw()
            body = json.dumps({"model": "m", "stream": True}).encode()
            head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
            writer.write(head.encode() + body)
            await reader.readuntil(b": keep-alive\n\n\r\n")
            commented.set()
            assert event in await reader.read()
            writer.close()

    run(story())


def test_11_a_slow_reader_holds_the_engine_back_in_bounded_memory() -> None:
    sent = 0

    async def torrent(asked: Asked, wire: Wire) -> None:
        nonlocal sent
        await wire.send(STREAM_HEAD)
        piece = chunk(delta("x" * 60_000))
        while not asked.gone.is_set() and sent < 400 * len(piece):
            await wire.send(piece)
            sent += len(piece)

    async def story() -> None:
        async with gateway_over(torrent, timeouts=Timeouts(idle=3.0)) as setup:
            _, writer = await setup.raw()
            body = json.dumps({"model": "m", "stream": True}).encode()
            writer.write(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
            writer.transport.pause_reading()
            await stands_still(lambda: sent)  # the engine's socket is full
            connection = next(iter(setup.gateway.plane.connections))
            assert connection.transport.get_write_buffer_size() < 1024 * 1024
            await setup.settles()  # a reader that takes nothing for `idle` seconds is cut off
            writer.close()

    run(story())


def test_11_an_endless_line_passes_without_being_gathered() -> None:
    size = 3 * 1024 * 1024

    async def endless(asked: Asked, wire: Wire) -> None:
        await wire.send(STREAM_HEAD)
        for _ in range(size // 65536):
            await wire.send(chunk(b"y" * 65536))
        await wire.send(END)

    async def story() -> None:
        async with gateway_over(endless) as setup:
            assert (await setup.chat(stream=True)).body == b"y" * size

    run(story())


def test_http_1_0_clients_get_plain_bytes_until_the_end() -> None:
    async def story() -> None:
        async with gateway_over(answer) as setup:
            reader, writer = await setup.raw()
            body = json.dumps({"model": "m", "stream": True}).encode()
            writer.write(b"POST /v1/completions HTTP/1.0\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
            head, _, rest = (await reader.read()).partition(b"\r\n\r\n")
            assert b"transfer-encoding" not in head and b"connection: close" in head
            assert rest == ROLE + delta("hel") + delta("lo") + STOP + DONE
            writer.close()

    run(story())


def test_a_compressed_body_is_passed_on_as_it_is() -> None:
    async def zipped(asked: Asked, wire: Wire) -> None:
        assert "accept-encoding" not in asked.headers
        await wire.send(whole(b"\x1f\x8b-not-really", extra=b"content-encoding: gzip\r\n"))

    async def story() -> None:
        async with gateway_over(zipped) as setup:
            response = await setup.chat()
            assert response.headers["content-encoding"] == "gzip" and response.body == b"\x1f\x8b-not-really"

    run(story())


def test_large_and_odd_bodies_pass_with_their_length() -> None:
    audio = bytes(range(256)) * 20_000

    async def speaks(asked: Asked, wire: Wire) -> None:
        await wire.send(whole(audio).replace(b"application/json", b"audio/mpeg"))

    async def embeds(asked: Asked, wire: Wire) -> None:
        await wire.send(whole(b"[" + b"1," * 2_000_000 + b"1]"))

    async def until_close(asked: Asked, wire: Wire) -> None:
        await wire.send(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n" + JSON_ANSWER)
        wire.writer.close()

    async def story() -> None:
        async with gateway_over(speaks) as setup:
            response = await setup.post({"model": "m", "input": "x"}, "/v1/audio/speech")
            assert response.body == audio and response.headers["content-type"] == "audio/mpeg"
        async with gateway_over(embeds) as setup:
            assert len((await setup.post({"model": "m", "input": "x"}, "/v1/embeddings")).body) == 4_000_003
        async with gateway_over(until_close) as setup:
            assert (await setup.chat()).body == JSON_ANSWER

    run(story())


def test_half_a_file_is_a_cut_connection_not_a_short_answer() -> None:
    async def half(asked: Asked, wire: Wire) -> None:
        await wire.send(b"HTTP/1.1 200 OK\r\ncontent-type: audio/mpeg\r\ncontent-length: 1000\r\n\r\n" + b"z" * 500)
        await asyncio.sleep(0.05)
        wire.reset()

    async def story() -> None:
        async with gateway_over(half) as setup:
            with pytest.raises(Exception, match=r"closed|reset|lost"):
                await setup.post({"model": "m", "input": "x"}, "/v1/audio/speech")

    run(story())


def test_half_a_file_is_no_whole_one_for_an_http_1_0_client_either() -> None:
    """nginx speaks HTTP/1.0 to what is behind it unless told otherwise. The end of the connection ends such a body, so
    only a reset says that it is not whole."""
    read = asyncio.Event()

    async def half(asked: Asked, wire: Wire) -> None:
        await wire.send(b"HTTP/1.1 200 OK\r\ncontent-type: audio/mpeg\r\ntransfer-encoding: chunked\r\n\r\n")
        await wire.send(chunk(b"z" * 500))
        await read.wait()
        wire.reset()

    async def story() -> None:
        async with gateway_over(half) as setup:
            reader, writer = await setup.raw()
            body = b'{"model":"m","input":"x"}'
            writer.write(b"POST /v1/audio/speech HTTP/1.0\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
            await reader.readuntil(b"\r\n\r\n")
            assert await reader.readexactly(500) == b"z" * 500
            read.set()
            with pytest.raises(ConnectionResetError):
                await reader.read()
            writer.close()

    run(story())


def test_when_every_replica_fails_the_engines_own_words_come_through() -> None:
    async def story() -> None:
        async with gateway_over(error500, error500) as setup:
            response = await setup.chat()
            assert response.status == 500 and b"CUDA error" in response.body

    run(story())


def test_40_an_engine_whose_queue_is_full_is_our_capacity_not_the_clients_quota() -> None:
    """429 is a client's own limit; an engine's 429 is tried elsewhere, and is 503 with Retry-After in the end."""

    async def full(asked: Asked, wire: Wire) -> None:
        await wire.send(whole(b'{"error":{"message":"queue full"}}', "429 Too Many Requests"))

    async def story() -> None:
        async with gateway_over(full, answer) as setup:
            for _ in range(8):
                assert (await setup.chat()).status == 200
        async with gateway_over(full, full) as setup:
            for _ in range(6):
                response = await setup.chat()
                assert response.status == 503 and int(response.headers["retry-after"]) >= 1
                assert json.loads(response.body)["error"]["code"] == "engine_queue_full"
            plane = setup.gateway.plane
            states = {replica["state"] for replica in plane.dispatcher.snapshot(plane.clock())["replicas"]}
            assert states == {"ready"}, "a full queue is no failure"

    run(story())


def test_a_client_that_closes_after_done_got_all_it_came_for() -> None:
    async def lingers(asked: Asked, wire: Wire) -> None:
        await wire.send(STREAM_HEAD + chunk(ROLE) + chunk(delta("x")) + chunk(DONE))
        await asked.gone.wait()  # the last chunk of the framing never comes

    async def story() -> None:
        async with gateway_over(lingers) as setup:
            reader, writer = await setup.raw()
            body = json.dumps({"model": "m", "stream": True}).encode()
            writer.write(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
            await reader.readuntil(b"[DONE]\n\n\r\n")
            writer.close()
            await setup.settles()
            assert b'outcome="ok"} 1' in setup.gateway.plane.telemetry.registry.render()

    run(story())


def test_an_endless_error_page_is_not_gathered_for_ever() -> None:
    cut = 0

    async def endless(asked: Asked, wire: Wire) -> None:
        nonlocal cut
        await wire.send(b"HTTP/1.1 500 Oh\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked\r\n\r\n")
        try:
            while True:
                await wire.send(chunk(b"x" * 65536))
        except ConnectionError:
            cut += 1

    async def story() -> None:
        async with gateway_over(endless, endless) as setup:
            assert (await setup.chat()).status == 502
            await until(lambda: cut == 2)

    run(story())


def test_when_every_replica_dies_it_is_502() -> None:
    async def story() -> None:
        async with gateway_over(die, die) as setup:
            response = await setup.chat()
            assert response.status == 502
            assert json.loads(response.body)["error"]["code"] == "reset"

    run(story())
