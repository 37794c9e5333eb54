"""The end of an answer that is written but not taken yet: it belongs to the client, who may be slow."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from collections.abc import Awaitable, Callable

import pytest
from stub_engine import (
    DONE,
    END,
    STREAM_HEAD,
    Asked,
    HandClock,
    Script,
    Setup,
    Wire,
    chunk,
    delta,
    gateway_over,
    run,
    until,
)

from kilocard.spec.model import Limits, Timeouts

#: events of a kilobyte: of a stream that the transport holds as a whole, and of one that fills the kernel too
SHORT, LONG = 50, 150
BODY = b'{"model":"m","stream":true}'
ENDS = {
    "keep-alive": b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n",
    "close": b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\n",
    "http/1.0": b"POST /v1/chat/completions HTTP/1.0\r\n",
}


def says(count: int) -> Script:
    async def script(asked: Asked, wire: Wire) -> None:
        await wire.send(STREAM_HEAD)
        for number in range(count):
            await wire.send(chunk(delta(f"<{number}>" + "x" * 1000)))
        await wire.send(chunk(DONE) + END)

    return script


async def asks(setup: Setup, head: bytes, buffers: int) -> socket.socket:
    """`buffers`: bytes that the kernel takes at either end, about."""
    for listener in setup.gateway._listeners:
        for sock in listener.sockets:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffers)
            # Linux counts from the first closed window, opened in between or not: that is not looked at here.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 0)
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffers)
    sock.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(sock, ("127.0.0.1", setup.gateway.port))
    await loop.sock_sendall(sock, head + b"content-length: %d\r\n\r\n" % len(BODY) + BODY)
    return sock


async def engine_is_done(setup: Setup) -> None:
    await until(lambda: setup.engines[0].asked and not setup.gateway.plane.exchanges)
    (connection,) = setup.gateway.plane.connections
    assert connection.transport.get_write_buffer_size() > 10_000


async def takes(sock: socket.socket, size: int, rests: Callable[[], Awaitable[None]]) -> bytes:
    """Until the end of the stream, or of the connection."""
    got = bytearray()
    with contextlib.suppress(ConnectionError):
        while DONE not in got and (data := await asyncio.get_running_loop().sock_recv(sock, size)):
            got += data
            await rests()
    sock.close()
    return bytes(got)


def is_whole(got: bytes, count: int) -> bool:
    return DONE in got and list(map(int, re.findall(rb"<(\d+)>x", got))) == list(range(count))


@pytest.mark.parametrize("end", ENDS)
def test_who_goes_on_reading_is_not_cut(end: str) -> None:
    """A connection is idle for half a second, and closed by force where nothing has been taken for one: this takes
    longer, however much of it was read before the engine was done."""

    async def story() -> None:
        timeouts = Timeouts(first_token=5.0, idle=1.0, total=60.0)
        async with gateway_over(says(LONG), timeouts=timeouts, limits=Limits(keep_alive=0.5)) as setup:
            clock = HandClock(setup)
            client = await asks(setup, ENDS[end], 16384)
            reading = asyncio.ensure_future(takes(client, 3000, lambda: clock.forward(0.1)))
            await engine_is_done(setup)
            began = clock.now
            assert is_whole(await reading, LONG)
            assert clock.now - began > 1.5

    run(story())


def test_who_goes_on_reading_is_not_cut_while_its_engine_is_held_either() -> None:
    """One read of the engine's can be a quarter of a megabyte: here it is more than two seconds' worth. And the time
    is over before the connection has been looked at twice."""

    async def story() -> None:
        timeouts = Timeouts(first_token=5.0, idle=1.0, total=60.0)
        async with gateway_over(says(4 * LONG), timeouts=timeouts) as setup:
            clock = HandClock(setup)
            client = await asks(setup, ENDS["close"], 16384)
            assert is_whole(await takes(client, 10000, lambda: clock.forward(0.1)), 4 * LONG)

    run(story())


@pytest.mark.parametrize("end", ENDS)
def test_who_stops_reading_is_cut(end: str) -> None:
    async def story() -> None:
        timeouts = Timeouts(first_token=5.0, idle=1.5, total=60.0)
        async with gateway_over(says(SHORT), timeouts=timeouts, limits=Limits(keep_alive=1.0)) as setup:
            sock = await asks(setup, ENDS[end], 4096)
            await engine_is_done(setup)
            await until(lambda: not setup.gateway.plane.connections, 5.0)
            assert not is_whole(await takes(sock, 65536, lambda: asyncio.sleep(0)), SHORT)

    run(story())


@pytest.mark.parametrize("end", ENDS)
def test_a_graceful_stop_waits_for_who_is_still_reading(end: str) -> None:
    async def story() -> None:
        async with gateway_over(says(SHORT), timeouts=Timeouts(first_token=5.0), drain=20.0) as setup:
            reading = asyncio.ensure_future(
                takes(await asks(setup, ENDS[end], 4096), 4096, lambda: asyncio.sleep(0.05))
            )
            await engine_is_done(setup)
            await setup.gateway.stop()
            # A process ends here, and with it what its transports hold.
            assert not any(each.transport.get_write_buffer_size() for each in setup.gateway.plane.connections)
            assert is_whole(await reading, SHORT)

    run(story())
