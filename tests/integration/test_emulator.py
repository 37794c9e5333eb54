"""The emulated engine seen by the official client: API, accounting, cancels, faults."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, TypeVar

import openai
import pytest
from openai import AsyncOpenAI

from kilocard.emulator.fleet import running_emulators
from kilocard.emulator.settings import Settings
from kilocard.emulator.text import LABEL
from kilocard.net.loop import run
from kilocard.perf.builtin import SMALL_FAST

FAST = Settings(models=("m",), max_num_seqs=4, speed=4.0)
HELLO: Any = [{"role": "user", "content": "Hello there, how are you?"}]  # 25 bytes: 7 tokens


T = TypeVar("T")


def go(main: Coroutine[Any, Any, T]) -> T:
    async def whole() -> T:
        try:
            return await main
        finally:
            for _ in range(10):
                await asyncio.sleep(0.002)  # the clients' transports close in the loop's next turns

    return run(whole())


class Rig:
    """One emulated engine, a client of it, and plain HTTP for the rest."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.client = AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=60)

    async def http(self, method: str, path: str, body: object = None) -> tuple[int, bytes]:
        host, port = self.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        raw = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: {len(raw)}\r\n\r\n"
        try:
            writer.write(head.encode() + raw)
            answer = await reader.read()
        finally:
            writer.close()
        top, _, content = answer.partition(b"\r\n\r\n")
        return int(top.split()[1]), content

    async def stats(self) -> dict[str, Any]:
        return dict(json.loads((await self.http("GET", "/admin/stats"))[1]))

    async def fault(self, kind: str, **parameters: object) -> None:
        status, body = await self.http("POST", "/admin/fault", {"kind": kind, **parameters})
        assert status == 200, body

    async def gauge(self, name: str) -> float:
        page = (await self.http("GET", "/metrics"))[1].decode()
        (line,) = [line for line in page.splitlines() if line.startswith(name + "{")]
        return float(line.rpartition(" ")[2])

    async def until(self, name: str, value: float) -> None:
        end = time.monotonic() + 30
        while (got := (await self.stats())[name]) != value:
            assert time.monotonic() < end, f"{name} is {got}, not {value}"
            await asyncio.sleep(0.01)

    async def chat(self, tokens: int = 30, **more: Any) -> Any:
        return await self.client.chat.completions.create(model="m", messages=HELLO, max_tokens=tokens, **more)


@asynccontextmanager
async def rig(settings: Settings) -> AsyncIterator[Rig]:
    async with running_emulators(1, settings) as (url,):
        one = Rig(url)
        try:
            yield one
        finally:
            await one.client.close()


def with_rig(body: Callable[[Rig], Awaitable[None]], settings: Settings = FAST) -> None:
    async def main() -> None:
        async with rig(settings) as one:
            await body(one)

    go(main())


def test_an_answer_in_one_piece_says_that_it_is_emulated() -> None:
    async def body(rig: Rig) -> None:
        raw = await rig.client.chat.completions.with_raw_response.create(model="m", messages=HELLO, max_tokens=30)
        assert raw.headers["x-kilocard-emulated"] == "1"
        answer = raw.parse()
        assert answer.system_fingerprint == "kilocard-emulated"
        assert answer.choices[0].message.content.startswith(LABEL)
        assert answer.choices[0].finish_reason == "length"
        assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (7, 30, 37)

    with_rig(body)


def test_a_stream_has_vllms_chunks_one_a_token() -> None:
    async def body(rig: Rig) -> None:
        chunks = [c async for c in await rig.chat(30, stream=True, stream_options={"include_usage": True})]
        role, *content, usage = chunks
        assert (role.choices[0].delta.role, role.choices[0].delta.content) == ("assistant", "")
        assert len(content) == 30
        text = "".join(c.choices[0].delta.content for c in content)
        assert text.startswith(LABEL)
        assert [c.choices[0].finish_reason for c in content] == [None] * 29 + ["length"]
        assert usage.choices == []
        assert (usage.usage.prompt_tokens, usage.usage.completion_tokens) == (7, 30)
        assert all(c.usage is None for c in chunks[:-1])
        plain = [c async for c in await rig.chat(5, stream=True)]
        assert len(plain) == 6  # no usage chunk unless asked for

    with_rig(body)


def test_streams_end_with_done_and_the_connection_is_kept() -> None:
    async def body(rig: Rig) -> None:
        host, port = rig.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        for _ in range(2):
            raw = json.dumps({"model": "m", "prompt": "x", "max_tokens": 3, "stream": True}).encode()
            writer.write(b"POST /v1/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n%b" % (len(raw), raw))
            answer = await reader.readuntil(b"\r\n0\r\n\r\n")
            assert b"content-type: text/event-stream" in answer
            assert answer.count(b"data: {") == 3
            assert b"data: [DONE]\n\n" in answer
        writer.close()

    with_rig(body)


def test_completions_and_their_default_length() -> None:
    async def body(rig: Rig) -> None:
        answer = await rig.client.completions.create(model="m", prompt="abcdefgh")
        assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (2, 16)
        answer = await rig.client.completions.create(model="m", prompt=[1, 2, 3], max_tokens=4)
        assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (3, 4)

    with_rig(body)


def test_an_open_length_ends_by_itself_unless_told_to_ignore_it() -> None:
    async def body(rig: Rig) -> None:
        create = rig.client.chat.completions.create
        natural = await create(model="m", messages=HELLO)
        assert natural.choices[0].finish_reason == "stop"
        assert natural.usage.completion_tokens < 900
        full = await create(model="m", messages=HELLO, extra_body={"ignore_eos": True})
        assert full.choices[0].finish_reason == "length"
        assert full.usage.completion_tokens == 1000 - 7
        exact = await create(model="m", messages=HELLO, max_completion_tokens=9)
        assert exact.usage.completion_tokens == 9

    with_rig(body, replace(FAST, max_model_len=1000, speed=50.0))


def test_the_same_seed_gives_the_same_text() -> None:
    async def texts() -> list[str]:
        async with rig(replace(FAST, seed=7)) as one:
            return [(await one.chat(40)).choices[0].message.content for _ in range(2)]

    assert go(texts()) == go(texts())


def test_embeddings_models_and_tokens() -> None:
    async def body(rig: Rig) -> None:
        got = await rig.client.embeddings.create(model="m", input=["a", "b", "a"])  # the client asks for base64
        first, second, third = [each.embedding for each in got.data]
        assert len(first) == 64
        assert first == third != second
        assert sum(x * x for x in first) == pytest.approx(1.0, abs=1e-3)
        status, raw = await rig.http(
            "POST", "/v1/embeddings", {"input": "a", "encoding_format": "base64", "dimensions": 8}
        )
        vector = json.loads(raw)["data"][0]["embedding"]
        assert status == 200
        assert len(struct.unpack("<8f", base64.b64decode(vector))) == 8
        (model,) = (await rig.client.models.list()).data
        assert model.id == "m"
        assert model.max_model_len == 8192  # type: ignore[attr-defined]  # vLLM's own field
        text = "Grüße, 千卡! \x00"
        status, raw = await rig.http("POST", "/tokenize", {"model": "m", "prompt": text})
        tokens = json.loads(raw)
        assert tokens["count"] == len(tokens["tokens"]) == 5
        status, raw = await rig.http("POST", "/detokenize", {"tokens": tokens["tokens"]})
        assert json.loads(raw) == {"prompt": text}
        for path in ("/health", "/version", "/ping", "/load"):
            assert (await rig.http("GET", path))[0] == 200

    with_rig(body)


@pytest.mark.parametrize(
    ("path", "sent", "status", "said"),
    [
        ("/v1/chat/completions", b'{"model": "m", "messages": [', 400, "JSON decode error"),
        ("/v1/chat/completions", {"model": "m", "messages": "hi"}, 400, "messages"),
        ("/v1/chat/completions", {"model": "m", "messages": []}, 400, "at least one"),
        ("/v1/chat/completions", {"model": "other", "messages": HELLO}, 404, "The model `other` does not exist."),
        ("/v1/chat/completions", {"model": "m", "messages": HELLO, "max_tokens": 9000}, 400, "is too large: 9000"),
        ("/v1/chat/completions", {"model": "m", "messages": HELLO, "max_tokens": 0}, 400, "at least 1"),
        ("/v1/chat/completions", {"model": "m", "messages": HELLO, "n": 2}, 400, "one choice"),
        ("/v1/chat/completions", {"model": "m", "messages": HELLO, "stream_options": {}}, 400, "stream=True"),
        ("/v1/completions", {"model": "m", "prompt": "x" * 40_000}, 400, "maximum context length is 8192"),
        ("/v1/completions", {"model": "m", "prompt": ["a", "b"]}, 400, "one prompt"),
        ("/v1/embeddings", {"model": "m", "input": []}, 400, "empty"),
        ("/admin/fault", {"kind": "fire"}, 400, "fire"),
        ("/admin/fault", {"kind": "refuse"}, 400, "duration_s"),
        ("/admin/fault", {"kind": "error", "typo": 1}, 400, "typo"),
    ],
)
def test_errors_have_vllms_shape(path: str, sent: object, status: int, said: str) -> None:
    async def body(rig: Rig) -> None:
        got, raw = await rig.http("POST", path, sent)
        error = json.loads(raw)["error"]
        assert (got, error["code"]) == (status, status)
        assert said in error["message"]

    with_rig(body)


def test_unknown_paths_and_methods() -> None:
    async def body(rig: Rig) -> None:
        assert await rig.http("GET", "/v1/nothing") == (404, b'{"detail":"Not Found"}')
        assert (await rig.http("GET", "/v1/chat/completions"))[0] == 405

    with_rig(body)


def test_the_queue_is_seen_in_the_metrics_and_drains() -> None:
    async def body(rig: Rig) -> None:
        jobs = [asyncio.create_task(rig.chat(60)) for _ in range(7)]
        await rig.until("running", 4)
        assert await rig.gauge("vllm:num_requests_running") == 4
        assert await rig.gauge("vllm:num_requests_waiting") == 3
        assert await rig.gauge("vllm:kv_cache_usage_perc") > 0
        answers = await asyncio.gather(*jobs)
        assert all(answer.usage.completion_tokens == 60 for answer in answers)
        assert await rig.gauge("vllm:num_requests_running") == 0
        assert await rig.gauge("vllm:generation_tokens_total") == 420
        assert await rig.gauge("vllm:prompt_tokens_total") == 49
        assert await rig.gauge("vllm:time_to_first_token_seconds_count") == 7
        assert await rig.gauge("vllm:inter_token_latency_seconds_count") == 413
        assert await rig.gauge("vllm:e2e_request_latency_seconds_count") == 7

    with_rig(body)


def test_a_small_kv_cache_preempts() -> None:
    async def body(rig: Rig) -> None:
        answers = await asyncio.gather(*(rig.chat(120) for _ in range(4)))
        assert all(answer.usage.completion_tokens == 120 for answer in answers)
        assert await rig.gauge("vllm:num_preemptions_total") > 0

    with_rig(body, replace(FAST, kv_tokens=16 * 20, max_model_len=200, speed=20.0))


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_frees_its_slot_at_once(stream: bool) -> None:
    async def body(rig: Rig) -> None:
        async def ask() -> None:
            answer = await rig.chat(5000, stream=stream)
            async for _ in answer:
                pass

        jobs = [asyncio.create_task(ask()) for _ in range(6)]
        await rig.until("running", 4)
        await rig.until("waiting", 2)
        for job in jobs:
            job.cancel()
        await asyncio.gather(*jobs, return_exceptions=True)
        await rig.until("running", 0)
        stats = await rig.stats()
        assert (stats["waiting"], stats["kv_usage"], stats["aborted"], stats["in_flight"]) == (0, 0.0, 6, 0)
        assert (await rig.chat(3)).usage.completion_tokens == 3

    with_rig(body)


def test_a_client_that_does_not_read_gets_everything_later() -> None:
    async def body(rig: Rig) -> None:
        host, port = rig.url.removeprefix("http://").split(":")
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect((host, int(port)))
        sock.setblocking(False)
        raw = json.dumps({"model": "m", "prompt": "x", "max_tokens": 50_000, "stream": True}).encode()
        sock.send(
            b"POST /v1/completions HTTP/1.1\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(raw), raw)
        )
        await rig.until("finished", 1)
        loop = asyncio.get_running_loop()
        got = bytearray()
        while data := await loop.sock_recv(sock, 1 << 16):
            got += data
        sock.close()
        assert got.count(b"data: {") == 50_000
        assert got.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")

    # 10 MB: more than the kernel keeps for a connection
    with_rig(body, replace(FAST, speed=400.0, max_model_len=60_000))


# faults


def test_fault_hang_and_its_end() -> None:
    async def body(rig: Rig) -> None:
        await rig.fault("hang")
        with pytest.raises(openai.APITimeoutError):
            await rig.chat(3, timeout=0.2)
        assert (await rig.http("GET", "/health"))[0] == 200
        await rig.fault("hang", scope="all", duration_s=1.5)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(rig.http("GET", "/health"), 0.1)
        await asyncio.sleep(1.5)
        assert (await rig.chat(3)).usage.completion_tokens == 3
        await rig.until("in_flight", 0)

    with_rig(body)


def test_fault_slow() -> None:
    async def body(rig: Rig) -> None:
        expected = 20 * SMALL_FAST.step_s(0, 1, 10) / FAST.speed
        await rig.fault("slow", factor=10)
        start = time.monotonic()
        await rig.chat(20)
        assert time.monotonic() - start > 8 * expected

    with_rig(body)


def test_fault_error_for_a_share_and_for_a_count() -> None:
    async def body(rig: Rig) -> None:
        await rig.fault("error", status=503, count=2)
        for _ in range(2):
            with pytest.raises(openai.InternalServerError):
                await rig.chat(2)
        await rig.chat(2)
        await rig.fault("error", share=0.5)
        answers = await asyncio.gather(*(rig.chat(2) for _ in range(40)), return_exceptions=True)
        failed = sum(isinstance(answer, openai.InternalServerError) for answer in answers)
        assert 8 <= failed <= 32
        assert json.loads((await rig.http("GET", "/admin/fault"))[1])["kind"] == "error"
        await rig.fault("none")
        await rig.chat(2)

    with_rig(body)


def test_fault_die_mid_stream() -> None:
    async def body(rig: Rig) -> None:
        await rig.fault("die_mid_stream", after_chunks=3)
        seen = 0
        with pytest.raises(openai.APIConnectionError):
            async for chunk in await rig.chat(50, stream=True):
                seen += bool(chunk.choices[0].delta.content)
        assert seen <= 3
        with pytest.raises(openai.APIConnectionError):
            await rig.chat(50)
        await rig.until("running", 0)
        assert (await rig.stats())["aborted"] == 2

    with_rig(body)


def test_fault_stall_mid_stream() -> None:
    async def body(rig: Rig) -> None:
        await rig.fault("stall_mid_stream", after_chunks=2)
        seen = 0

        async def read() -> None:
            nonlocal seen
            async for chunk in await rig.chat(10, stream=True):
                seen += bool(chunk.choices[0].delta.content)

        reading = asyncio.create_task(read())
        while seen < 2:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)
        assert seen == 2 and not reading.done()
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        await rig.until("in_flight", 0)

    with_rig(body)


def test_fault_reset_before_response() -> None:
    async def body(rig: Rig) -> None:
        await rig.fault("reset_before_response", count=1)
        with pytest.raises(openai.APIConnectionError):
            await rig.chat(2)
        await rig.chat(2)

    with_rig(body)


def test_fault_refuse() -> None:
    async def body(rig: Rig) -> None:
        running = asyncio.create_task(rig.chat(5000))
        await rig.until("running", 1)
        await rig.fault("refuse", duration_s=1.5)
        with pytest.raises(openai.APIConnectionError):
            await running
        with pytest.raises(ConnectionRefusedError):
            await rig.http("GET", "/health")
        await asyncio.sleep(1.6)
        assert (await rig.chat(2)).usage.completion_tokens == 2

    with_rig(body)


def test_fault_lie_health() -> None:
    async def body(rig: Rig) -> None:
        await rig.fault("lie_health")
        assert (await rig.http("GET", "/health"))[0] == 200
        assert (await rig.http("GET", "/v1/models"))[0] == 200
        with pytest.raises(openai.InternalServerError):
            await rig.chat(2)
        await rig.fault("lie_health", invert=True)
        assert (await rig.http("GET", "/health"))[0] == 503
        assert (await rig.http("GET", "/v1/models"))[0] == 503
        await rig.chat(2)

    with_rig(body)


def test_many_replicas_in_one_process() -> None:
    async def main() -> None:
        async with running_emulators(20, replace(FAST, metrics_bytes=51_000)) as urls:
            assert len(set(urls)) == 20
            rigs = [Rig(url) for url in urls]
            answers = await asyncio.gather(*(one.chat(10) for one in rigs))
            assert all(answer.usage.completion_tokens == 10 for answer in answers)
            for one in rigs:
                assert (await one.stats())["requests"] == 1
            page = (await rigs[0].http("GET", "/metrics"))[1]
            assert 51_000 <= len(page) < 52_000
            assert await rigs[0].gauge("vllm:num_requests_running") == 0
            for one in rigs:
                await one.client.close()

    go(main())


@pytest.mark.parametrize(("speed", "tokens"), [(1.0, 60), (8.0, 480), (40.0, 2400)])
def test_it_keeps_the_profiles_time(speed: float, tokens: int) -> None:
    """Half a second of steps of 8, 1 and 0.2 ms: neither the sum of so many late timers, nor ahead of time."""

    async def body(rig: Rig) -> None:
        expected = tokens * SMALL_FAST.step_s(0, 1, tokens // 2) / speed
        took = []
        for _ in range(20):  # others on the machine can only make it longer
            start = time.monotonic()
            await rig.chat(tokens)
            took.append(time.monotonic() - start)
            if took[-1] < expected * 1.3:
                break
        assert expected * 0.98 <= min(took) < expected * 1.3

    with_rig(body, replace(FAST, speed=speed))
