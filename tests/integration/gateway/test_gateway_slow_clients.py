"""Clients that send or read as slowly as they can, or vanish: each makes room again, and holds little until then."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from stub_engine import (
    DONE,
    END,
    STREAM_HEAD,
    Asked,
    Setup,
    Wire,
    answer,
    chunk,
    delta,
    gateway_over,
    run,
    until,
    within,
)

from kilocard.gateway.downstream import ClientConnection
from kilocard.spec.model import Limits, Timeouts

HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n"
BODY = b'{"model":"m","messages":[]}'
#: time-outs that a test can wait for; they are looked at once a second
QUICK = Limits(client_idle=1.0, body_rate=1000, keep_alive=30.0)

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def trickle(streams: Streams, data: bytes, size: int = 1, every: float = 0.05) -> None:
    """Until all is sent, or the other side has had enough."""
    with contextlib.suppress(ConnectionError):
        for at in range(0, len(data), size):
            streams[1].write(data[at : at + size])
            await streams[1].drain()
            await asyncio.sleep(every)


async def head_by_bytes(streams: Streams) -> None:
    await trickle(streams, HEAD + b"x-a: y\r\n" * 1000)


async def body_by_bytes(streams: Streams) -> None:
    streams[1].write(HEAD + b"content-length: 5000\r\n\r\n")
    await trickle(streams, b" " * 5000)


async def body_fast_then_by_bytes(streams: Streams) -> None:
    streams[1].write(HEAD + b"content-length: 2000000\r\n\r\n" + b" " * 1_000_000)
    await trickle(streams, b" " * 5000)


async def chunks_by_bytes(streams: Streams) -> None:
    streams[1].write(HEAD + b"transfer-encoding: chunked\r\n\r\n")
    await trickle(streams, b"1\r\n \r\n" * 1000)


async def one_endless_extension(streams: Streams) -> None:
    streams[1].write(HEAD + b"transfer-encoding: chunked\r\n\r\n1;a=")
    await trickle(streams, b"b" * 5000)


async def trailers_without_end(streams: Streams) -> None:
    streams[1].write(HEAD + b"transfer-encoding: chunked\r\n\r\n1\r\n \r\n0\r\n")
    await trickle(streams, b"x-a: y\r\n" * 1000)


async def promises_a_body(streams: Streams) -> None:
    streams[1].write(HEAD + b"expect: 100-continue\r\ncontent-length: 50\r\n\r\n")
    assert (await streams[0].readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100")


async def first_request(streams: Streams) -> None:
    streams[1].write(HEAD + b"content-length: %d\r\n\r\n" % len(BODY) + BODY)
    head = await streams[0].readuntil(b"\r\n\r\n")
    await streams[0].readexactly(int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))


async def nothing(streams: Streams) -> None:
    pass


#: what each does first, and then, as slowly as it can
SENDERS: list[tuple[Callable[[Streams], Awaitable[None]], Callable[[Streams], Awaitable[None]]]] = [
    *((nothing, slowly) for slowly in (head_by_bytes, body_by_bytes, body_fast_then_by_bytes)),
    *((nothing, slowly) for slowly in (chunks_by_bytes, one_endless_extension, trailers_without_end)),
    (promises_a_body, nothing),
    (first_request, head_by_bytes),
]


def test_senders_are_cut_by_the_whole_and_not_by_the_byte() -> None:
    async def one(setup: Setup, first: Callable[[Streams], Awaitable[None]], then: Any) -> None:
        streams = await setup.raw()
        await first(streams)
        sending = asyncio.ensure_future(then(streams))
        async with within(5.0):
            said = await streams[0].readuntil(b"\r\n")
        assert said.startswith(b"HTTP/1.1 408"), (first, then)
        sending.cancel()
        streams[1].close()

    async def story() -> None:
        async with gateway_over(answer, limits=QUICK) as setup:
            await asyncio.gather(*(one(setup, *sends) for sends in SENDERS))
            assert len(setup.engines[0].asked) == 1
            await until(lambda: setup.gateway.plane.buffered == 0)

    run(story())


def test_a_slow_body_that_keeps_the_pace_arrives() -> None:
    async def story() -> None:
        async with gateway_over(answer, limits=QUICK) as setup:
            streams = await setup.raw()
            body = BODY + b" " * 5000
            streams[1].write(HEAD + b"content-length: %d\r\n\r\n" % len(body))
            began, sent = time.monotonic(), 0
            while sent < len(body):  # 2,000 bytes a second, for 2.5 s, whoever else has the processor meanwhile
                due = int(2000 * (time.monotonic() - began))
                streams[1].write(body[sent:due])
                sent = max(sent, due)
                await asyncio.sleep(0.05)
            assert (await streams[0].readuntil(b"\r\n")).startswith(b"HTTP/1.1 200")
            streams[1].close()

    run(story())


def test_time_behind_a_running_request_is_not_the_clients() -> None:
    """A second request's body stands still while the first one runs: its time begins when that has ended."""
    gate = asyncio.Event()

    async def waits(asked: Asked, wire: Wire) -> None:
        await gate.wait()
        await answer(asked, wire)

    async def story() -> None:
        async with gateway_over(waits, limits=QUICK, timeouts=Timeouts(first_token=10.0)) as setup:
            reader, writer = await setup.raw()
            whole = HEAD + b"content-length: %d\r\n\r\n" % len(BODY) + BODY
            writer.write(whole + whole[:-5])
            await asyncio.sleep(3.0)
            gate.set()
            assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200")
            writer.write(whole[-5:])
            await until(lambda: len(setup.engines[0].asked) == 2)
            writer.close()

    run(story())


@pytest.mark.parametrize("reads", [0, 1])
def test_11_a_reader_that_hardly_reads_is_cut_and_its_engine_held(reads: int) -> None:
    """`reads`: bytes at a time, ten times a second. What it does not take stays with the engine, not with us."""
    sent = 0

    async def endless(asked: Asked, wire: Wire) -> None:
        nonlocal sent
        piece = chunk(delta("x" * 16_000))
        await wire.send(STREAM_HEAD)
        with contextlib.suppress(ConnectionError):
            while not asked.gone.is_set():
                await wire.send(piece)
                sent += len(piece)

    async def story() -> None:
        timeouts = Timeouts(first_token=5.0, idle=1.5, total=60.0)
        async with gateway_over(endless, timeouts=timeouts) as setup:
            loop = asyncio.get_running_loop()
            sock = socket.socket()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.setblocking(False)
            await loop.sock_connect(sock, ("127.0.0.1", setup.gateway.port))
            body = b'{"model":"m","stream":true}'
            await loop.sock_sendall(sock, HEAD + b"content-length: %d\r\n\r\n" % len(body) + body)
            plane = setup.gateway.plane
            largest = 0
            async with within(8):
                while not plane.exchanges:
                    await asyncio.sleep(0.01)
                while plane.exchanges:
                    for connection in plane.connections:
                        largest = max(largest, connection.transport.get_write_buffer_size())
                    if reads:
                        with contextlib.suppress(BlockingIOError, ConnectionError):
                            sock.recv(reads)
                    await asyncio.sleep(0.1)
            assert largest < 1024 * 1024
            assert sent < 32 * 1024 * 1024  # the kernel's buffers, both ways
            assert await setup.settles()
            sock.close()

    run(story())


def test_what_goes_past_the_transport_never_overtakes_what_waits_in_it() -> None:
    """Pieces of text go past the transport, pairs of them through it, and the client stops reading now and then."""
    count, text = 6000, "x" * 3000

    async def numbered(asked: Asked, wire: Wire) -> None:
        await wire.send(STREAM_HEAD)
        for number in range(0, count, 2):
            pair = [delta(f"<{number + more}>{text}") for more in (0, 1)]
            if number % 14:
                for each in pair:
                    await wire.send(chunk(each))
            else:
                await wire.send(chunk(pair[0]) + chunk(pair[1]))
        await wire.send(chunk(DONE) + END)

    async def story() -> None:
        async with gateway_over(numbered, timeouts=Timeouts(idle=30.0)) as setup:
            sock = socket.socket()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(sock, ("127.0.0.1", setup.gateway.port))
            body = b'{"model":"m","stream":true}'
            await loop.sock_sendall(sock, HEAD + b"content-length: %d\r\n\r\n" % len(body) + body)
            received, waited = bytearray(), 0
            await until(lambda: setup.gateway.plane.connections)
            (connection,) = setup.gateway.plane.connections
            while not received.endswith(END):
                if len(received) % 7 == 0:
                    await asyncio.sleep(0.001)
                waited += connection.transport.get_write_buffer_size() > 0
                data = await loop.sock_recv(sock, 65536)
                assert data
                received += data
            sock.close()
            assert waited > 10, "the transport has had something to keep"
            assert list(map(int, re.findall(rb"<(\d+)>x", received))) == list(range(count))
            assert await setup.settles()

    run(story())


def test_behind_whatever_else_is_written_one_piece_goes_through_the_transport() -> None:
    """Only the transport knows whether that is on its way already."""
    seen: list[bool] = []

    async def story() -> None:
        received, sent = b"", 0

        async def script(asked: Asked, wire: Wire) -> None:
            nonlocal received, sent
            await wire.send(STREAM_HEAD)
            for chunks in (1, 1, 1, 2, 1, 1):
                await wire.send(chunk(delta("x")) * chunks)
                sent += chunks
                while received.count(b'"x"') < sent:  # it has gone through the gateway
                    received += await reader.read(65536)
                (exchange,) = setup.gateway.plane.exchanges.values()
                assert exchange._passing is not None
                seen.append(exchange._passing.straight)
            await wire.send(chunk(DONE) + END)

        async with gateway_over(script) as setup:
            reader, writer = await setup.raw()
            body = b'{"model":"m","stream":true}'
            writer.write(HEAD + b"content-length: %d\r\n\r\n" % len(body) + body)
            await until(lambda: len(seen) == 6)
            assert (await reader.readuntil(END)).endswith(chunk(DONE) + END)
            writer.close()

    run(story())
    assert seen == [False, True, True, False, True, True]


def test_answers_are_not_piled_up_for_a_client_that_does_not_read() -> None:
    """40,000 requests in one go, each with an answer of our own: they wait as bytes until the client reads."""

    async def story() -> None:
        async with gateway_over(answer) as setup:
            sock = socket.socket()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # before it connects: the window stays small
            sock.setblocking(False)
            await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", setup.gateway.port))
            reader, writer = await asyncio.open_connection(sock=sock)
            count = 40_000
            writer.write(b"GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n" * count)
            plane = setup.gateway.plane
            largest = waiting = 0
            for _ in range(40):
                await asyncio.sleep(0.01)
                for connection in plane.connections:
                    assert isinstance(connection, ClientConnection)
                    largest = max(largest, connection.transport.get_write_buffer_size())
                    waiting = max(waiting, len(connection._queue))
            assert largest < 512 * 1024
            assert waiting <= 32
            assert (await setup.chat()).status == 200  # others are served meanwhile
            answers = 0
            tail = b""
            while answers < count:
                data = tail + await reader.read(262144)
                assert len(data) > len(tail)
                answers += data.count(b"HTTP/1.1 200 OK")
                tail = data[-14:] if not data.endswith(b"HTTP/1.1 200 OK") else b""
            writer.close()

    run(story(), seconds=40)


def test_a_client_that_vanished_is_noticed_by_the_kernel() -> None:
    """Nothing can cut a cable here; the options are those of every accepted connection."""

    async def story() -> None:
        async with gateway_over(answer, timeouts=Timeouts(idle=45.0)) as setup:
            _, writer = await setup.raw()
            await until(lambda: setup.gateway.plane.connections)
            (connection,) = setup.gateway.plane.connections
            sock = connection.transport.get_extra_info("socket")
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 30
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 45_000
            writer.close()

    run(story())


def test_the_kernels_patience_follows_the_cluster_file() -> None:
    """Else a client that reads slowly is cut by the old time-out, whatever the file says now."""

    async def story() -> None:
        async with gateway_over(answer, timeouts=Timeouts(idle=45.0)) as setup:
            _, open_one = await setup.raw()
            plane = setup.gateway.plane
            await until(lambda: plane.connections)
            spec = setup.gateway.spec
            timeouts = replace(spec.gateway.timeouts, idle=600.0)
            setup.gateway.reload(replace(spec, gateway=replace(spec.gateway, timeouts=timeouts)))
            _, new_one = await setup.raw()
            await until(lambda: len(plane.connections) == 2)
            for connection in plane.connections:
                sock = connection.transport.get_extra_info("socket")
                assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 600_000
            for writer in (open_one, new_one):
                writer.close()

    run(story())
