"""Answers that two readers may read in two ways: no client sees one, and no later request gets what is behind it."""

from __future__ import annotations

import asyncio
import json

import pytest
from stub_engine import DONE, JSON_ANSWER, ROLE, STOP, Asked, Wire, answer, delta, gateway_over, run, whole

from kilocard.core.replica import Endpoint, Found, Lost
from kilocard.spec.model import ModelSpec

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
LENGTH = b"content-length: %d\r\n" % len(JSON_ANSWER)
CODED = b"transfer-encoding: chunked\r\n"
CHUNKS = b"%x\r\n%b\r\n0\r\n\r\n" % (len(JSON_ANSWER), JSON_ANSWER)
#: what would be the next request's answer, if it were read as one
FORGED = whole(b'{"forged":true}')

#: whole answers that are not one answer: the request goes to another replica
FAILED = {
    "length and chunks": HEAD + LENGTH + CODED + b"\r\n" + CHUNKS,
    "chunks and length": HEAD + CODED + LENGTH + b"\r\n" + CHUNKS,
    "two lengths": HEAD + LENGTH + b"content-length: 3\r\n\r\n" + JSON_ANSWER,
    "two lengths, the same": HEAD + LENGTH + LENGTH + b"\r\n" + JSON_ANSWER,
    "length with a sign": HEAD + b"content-length: +5\r\n\r\n{   }",
    "two in one length": HEAD + b"content-length: 5, 5\r\n\r\n{   }",
    "length that is none": HEAD + b"content-length: five\r\n\r\n{   }",
    "length that overflows": HEAD + b"content-length: 99999999999999999999\r\n\r\n{   }",
    "gzip, chunked": HEAD + b"transfer-encoding: gzip, chunked\r\n\r\n" + CHUNKS,
    "identity": HEAD + b"transfer-encoding: identity\r\n\r\n" + JSON_ANSWER,
    "xchunked": HEAD + b"transfer-encoding: xchunked\r\n\r\n" + CHUNKS,
    "chunked twice": HEAD + CODED + CODED + b"\r\n" + CHUNKS,
    "folded": HEAD + b"x: y\r\n z\r\n" + LENGTH + b"\r\n" + JSON_ANSWER,
    "space before a colon": HEAD + b"content-length : 5\r\n\r\n{   }",
    "bare LF": HEAD + b"x: y\n" + LENGTH + b"\r\n" + JSON_ANSWER,
    "NUL": HEAD + b"x: \x00\r\n" + LENGTH + b"\r\n" + JSON_ANSWER,
    "no status": b"HTTP/1.1 OK\r\n" + LENGTH + b"\r\n" + JSON_ANSWER,
    "HTTP/3.7": b"HTTP/3.7 200 OK\r\n" + LENGTH + b"\r\n" + JSON_ANSWER,
    "bad chunk": HEAD + CODED + b"\r\nxyz\r\n" + JSON_ANSWER,
    "chunk with a sign": HEAD + CODED + b"\r\n-5\r\n" + JSON_ANSWER,
    "chunk without its end": HEAD + CODED + b"\r\n%x\r\n%b0\r\n\r\n" % (len(JSON_ANSWER), JSON_ANSWER),
    "101": b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n" + FORGED,
    "100 with a body": b"HTTP/1.1 100 Continue\r\ncontent-length: 5\r\n\r\nhello" + FORGED,
    "not HTTP": b"\x16\x03\x01\x02\x00\x01\x00",
}
#: right answers with something behind them, which is nobody's: taken, and the connection is closed
STRAY = {
    "length too small": HEAD + LENGTH + b"\r\n" + JSON_ANSWER + b"more",
    "an answer behind it": HEAD + LENGTH + b"\r\n" + JSON_ANSWER + FORGED,
    "an answer behind chunks": HEAD + CODED + b"\r\n" + CHUNKS + FORGED,
    "nonsense behind chunks": HEAD + CODED + b"\r\n" + CHUNKS + b"\x00\x00",
    "chunks in HTTP/1.0": b"HTTP/1.0 200 OK\r\ncontent-type: application/json\r\n" + CODED + b"\r\n" + CHUNKS,
}


@pytest.mark.parametrize("name", FAILED)
def test_an_answer_in_doubt_is_a_failure_of_the_replica(name: str) -> None:
    async def odd(asked: Asked, wire: Wire) -> None:
        await wire.send(FAILED[name])

    async def story() -> None:
        async with gateway_over(odd, answer) as setup:
            for _ in range(6):  # both replicas get some
                said = await setup.chat()
                assert (said.status, said.body) == (200, JSON_ANSWER)
            bad = setup.engines[0]
            assert bad.asked, "the odd replica was never asked"
            # Each on a connection of its own (one more asks for health): none was used again.
            assert bad.accepted >= len(bad.asked)
            assert await setup.settles()

    run(story())


@pytest.mark.parametrize("name", STRAY)
def test_what_is_behind_an_answer_is_nobodys(name: str) -> None:
    async def stray(asked: Asked, wire: Wire) -> None:
        await wire.send(STRAY[name])

    async def story() -> None:
        async with gateway_over(stray) as setup:
            for _ in range(5):
                said = await setup.chat()
                assert (said.status, said.body) == (200, JSON_ANSWER)
            assert setup.engines[0].accepted >= 5
            assert await setup.settles()

    run(story())


@pytest.mark.parametrize("status", ["204 No Content", "304 Not Modified"])
def test_an_answer_without_a_body_closes_its_connection(status: str) -> None:
    """One that has a body all the same sends it late: it would be the next request's answer."""

    async def without(asked: Asked, wire: Wire) -> None:
        await wire.send(f"HTTP/1.1 {status}\r\ncontent-length: {len(FORGED)}\r\n\r\n".encode())
        await wire.send(FORGED)

    async def story() -> None:
        async with gateway_over(without) as setup:
            for _ in range(5):
                said = await setup.chat()
                assert said.status == int(status[:3]) and not said.body
            assert setup.engines[0].accepted >= 5

    run(story())


@pytest.mark.parametrize("status", ["204 No Content", "304 Not Modified"])
@pytest.mark.parametrize("kind", [b"", b"content-type: application/json\r\n"])
def test_an_answer_without_a_body_has_no_framing_for_one(status: str, kind: bytes) -> None:
    """A client reads none behind such a head: the end of a body would be the beginning of its next answer."""

    async def without(asked: Asked, wire: Wire) -> None:
        await wire.send(f"HTTP/1.1 {status}\r\n".encode() + kind + b"\r\n")

    async def story() -> None:
        async with gateway_over(without) as setup:
            reader, writer = await setup.raw()
            ask = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 13\r\n\r\n" + b'{"model":"m"}'
            writer.write(ask + ask)
            for _ in range(2):
                head = await reader.readuntil(b"\r\n\r\n")
                assert head.startswith(f"HTTP/1.1 {status}\r\n".encode())
                assert b"transfer-encoding" not in head and b"content-length" not in head
            writer.close()

    run(story())


STREAM_UNTIL_CLOSE = b"HTTP/1.0 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"


async def and_close(wire: Wire, *pieces: bytes) -> None:
    for piece in pieces:
        await wire.send(piece)
        await asyncio.sleep(0.02)
    wire.writer.close()


@pytest.mark.parametrize(
    "said",
    [
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n" + JSON_ANSWER[:-1],
        b"HTTP/1.0 200 OK\r\ncontent-type: application/json\r\n\r\n",
        STREAM_UNTIL_CLOSE,
        STREAM_UNTIL_CLOSE + ROLE,
        STREAM_UNTIL_CLOSE + ROLE + delta("x")[:-9],
    ],
    ids=["json", "no json", "empty stream", "preamble", "part of the first event"],
)
def test_an_answer_that_only_its_connection_ends_may_be_a_part_of_one(said: bytes) -> None:
    """A process that dies closes its connections as one that is done does. What can be told from the rest is told."""

    async def dies(asked: Asked, wire: Wire) -> None:
        await and_close(wire, said)

    async def story() -> None:
        turns = ModelSpec("m", {"p": 1}, policy="round_robin")
        async with gateway_over(dies, answer, model=turns) as setup:
            for _ in range(2):  # one begins at either replica
                response = await setup.chat(stream=b"event-stream" in said)
                assert response.status == 200 and b"error" not in response.body
                assert response.body == JSON_ANSWER or response.body.endswith(DONE)
            assert setup.engines[0].asked, "the one that dies was never asked"

    run(story())


@pytest.mark.parametrize(
    ("end", "whole"),
    [(b"", False), (STOP[:20], False), (STOP, True), (DONE, True), (DONE[:-2], True), (STOP[:-1], True)],
)
def test_a_stream_that_only_its_connection_ends_is_whole_where_its_events_say_so(end: bytes, whole: bool) -> None:
    async def script(asked: Asked, wire: Wire) -> None:
        await and_close(wire, STREAM_UNTIL_CLOSE + ROLE + delta("one"), delta("two") + end)

    async def story() -> None:
        async with gateway_over(script) as setup:
            response = await setup.chat(stream=True)
            text = ROLE + delta("one") + delta("two")
            if whole:
                assert response.body == text + end
            else:
                assert response.body.startswith(text + b'data: {"error"') and b'"code":"reset"' in response.body

    run(story())


class Hasty(asyncio.Protocol):
    """Answers a request when it begins, and reads no more of it; the connection stays open."""

    transports: list[asyncio.Transport]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]  # TCP reads and writes

    def data_received(self, data: bytes) -> None:
        if data.startswith(b"POST"):
            self.transports.append(self.transport)
            self.transport.write(whole(b'{"error":{"message":"too long"}}', "413 Too Large"))
            self.transport.pause_reading()
        else:
            self.transport.write(whole(b"{}"))


def test_an_early_answer_is_the_last_on_its_connection() -> None:
    """An engine that refuses a long body before it has read it: what it makes of the rest is not known."""
    Hasty.transports = []

    async def story() -> None:
        server = await asyncio.get_running_loop().create_server(Hasty, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with gateway_over(answer) as setup:
            for replica in list(setup.gateway.plane.targets):
                setup.gateway.apply(Lost(replica, "another takes its place"))
            setup.gateway.apply(Found(Endpoint("p/hasty", "p", f"http://127.0.0.1:{port}")))
            body = json.dumps({"model": "m", "prompt": "x" * 20_000_000}).encode()
            for _ in range(2):
                assert (await setup.post(body, "/v1/completions")).status == 413
            assert len(Hasty.transports) == 2, "the connection was used again"
            for transport in Hasty.transports:
                transport.abort()
        server.close()

    run(story())
