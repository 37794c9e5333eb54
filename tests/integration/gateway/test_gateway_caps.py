"""What one client may make the gateway hold: each bound, and what a client is told that is over it."""

from __future__ import annotations

import asyncio
import gzip
import json

import pytest
from stub_engine import answer, gateway_over, run, within

from kilocard.spec.model import Limits

SMALL = Limits(body=4000, header=2000, url=300, buffered=20_000)
CHAT = b"POST /v1/chat/completions%b HTTP/1.1\r\nhost: x\r\n"
FORM = b"POST /v1/audio/transcriptions HTTP/1.1\r\nhost: x\r\ncontent-type: multipart/form-data; boundary=B\r\n"
GOOD = b'{"model":"m"}'
CODED = b"transfer-encoding: chunked\r\n\r\n"

CASES = {
    "path": (b"GET /" + b"x" * 300 + b" HTTP/1.1\r\nhost: x\r\n\r\n", 414, "url_too_long"),
    "query": (CHAT % (b"?" + b"x" * 280) + b"content-length: 13\r\n\r\n" + GOOD, 414, "url_too_long"),
    "a first line without end": (b"GET /" + b"x" * 1000, 414, "url_too_long"),
    "line": (CHAT % b"" + b"x: " + b"y" * 2000 + b"\r\n\r\n", 431, "headers_too_large"),
    "head without end": (CHAT % b"" + b"x: y\r\n" * 500, 431, "headers_too_large"),
    "lines": (CHAT % b"" + b"a:\r\n" * 257 + b"\r\n", 431, "headers_too_large"),
    "trailers": (CHAT % b"" + CODED + b"0\r\n" + b"a: b\r\n" * 400, 431, "headers_too_large"),
    "extensions": (CHAT % b"" + CODED + b"1;" + b"a" * 3000, 431, "headers_too_large"),
    "small chunks, long extensions": (CHAT % b"" + CODED + b"1;aaaaaaaaaaa\r\n \r\n" * 400, 431, "headers_too_large"),
    "body": (CHAT % b"" + b"content-length: 4001\r\n\r\n", 413, "body_too_large"),
    "body that is there": (CHAT % b"" + b"content-length: 5000\r\n\r\n" + b" " * 5000, 413, "body_too_large"),
    "chunks": (CHAT % b"" + CODED + (b"3e8\r\n" + b" " * 1000 + b"\r\n") * 5, 413, "body_too_large"),
    "one chunk": (CHAT % b"" + CODED + b"fffff\r\n" + b" " * 5000, 413, "body_too_large"),
    "form": (FORM + b"content-length: 4001\r\n\r\n", 413, "body_too_large"),
    "form in chunks": (FORM + CODED + b"1388\r\n" + b"-" * 5000, 413, "body_too_large"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_over_a_cap(name: str) -> None:
    raw, status, code = CASES[name]

    async def story() -> None:
        async with gateway_over(answer, limits=SMALL) as setup:
            reader, writer = await setup.raw()
            writer.write(raw)
            said = await reader.read()
            head, _, body = said.partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 %d" % status), said
            assert b"connection: close" in head
            error = json.loads(body)["error"]
            assert error["code"] == code and error["type"] == "invalid_request_error"
            assert "gateway.limits." in error["message"] or "256" in error["message"]
            assert not setup.engines[0].asked
            assert setup.gateway.plane.buffered == 0
            writer.close()

    run(story())


def test_what_is_just_within_the_caps_passes() -> None:
    async def story() -> None:
        async with gateway_over(answer, limits=SMALL) as setup:
            reader, writer = await setup.raw()
            body = GOOD + b" " * (4000 - len(GOOD))
            query = b"?" + b"x" * (300 - len(b"/v1/chat/completions?"))
            for framing in (
                b"content-length: 4000\r\n\r\n" + body,
                CODED + b"".join(b"1\r\n%b\r\n" % body[i : i + 1] for i in range(4000)) + b"0\r\na: b\r\n\r\n",
            ):
                writer.write(CHAT % query + b"a:\r\n" * 250 + framing)
                assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200")
                head = await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))
            writer.close()

    run(story())


def test_heads_count_among_all_that_is_buffered() -> None:
    """Heads that never end, on many connections: they are bodies by another name."""

    async def story() -> None:
        async with gateway_over(answer, limits=SMALL) as setup:
            clients = [await setup.raw() for _ in range(14)]
            for _, writer in clients:
                writer.write(CHAT % b"" + b"x: " + b"y" * 1500)
            async with within(20):
                first = [asyncio.ensure_future(reader.readuntil(b"\r\n")) for reader, _ in clients]
                done, waiting = await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
            assert {task.result() for task in done} == {b"HTTP/1.1 503 Service Unavailable\r\n"}
            assert setup.gateway.plane.buffered <= SMALL.buffered
            for task in waiting:
                task.cancel()
            for _, writer in clients:
                writer.close()
            assert await setup.settles()
            assert (await setup.chat()).status == 200

    run(story())


@pytest.mark.parametrize("coding", ["gzip", "br", "deflate", "zstd", "gzip, identity", "GZIP"])
def test_a_compressed_body_is_refused_as_that(coding: str) -> None:
    async def story() -> None:
        async with gateway_over(answer) as setup:
            said = await setup.post(gzip.compress(GOOD), headers=[("content-encoding", coding)])
            assert said.status == 415
            error = json.loads(said.body)["error"]
            assert error["code"] == "unsupported_content_encoding" and "content-encoding" in error["message"]
            assert not setup.engines[0].asked
            assert (await setup.post(GOOD, headers=[("content-encoding", "identity")])).status == 200

    run(story())


def test_a_form_that_names_two_models_is_refused() -> None:
    """Engines' form readers take the last field of a name, others the first: which one would have been allowed?"""

    async def story() -> None:
        async with gateway_over(answer) as setup:
            part = b'--B\r\ncontent-disposition: form-data; name="model"\r\n\r\n%b\r\n'
            reader, writer = await setup.raw()
            form = part % b"m" + part % b"other" + b"--B--\r\n"
            writer.write(FORM + b"content-length: %d\r\n\r\n" % len(form) + form)
            assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 400")
            assert not setup.engines[0].asked
            writer.close()

    run(story())
