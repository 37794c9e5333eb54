"""The small server against raw sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest

from kilocard.core.errors import CapacityError
from kilocard.net.loop import run
from kilocard.net.server import Answer, Gone, Reply, Request, Server

Reader, Writer = asyncio.StreamReader, asyncio.StreamWriter
Talk = Callable[[Server, Reader, Writer], Awaitable[None]]


async def echo(request: Request, reply: Reply) -> Answer:
    return Answer(200, "text/plain", f"{request.method} {request.path} {len(request.body)}")


def talk(handler: Callable[..., Awaitable[Answer | None]], body: Talk, **options: float) -> None:
    async def main() -> None:
        async with Server(handler, **options) as server:  # type: ignore[arg-type]  # options are a mixture
            port = await server.start("127.0.0.1", 0)
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                await body(server, reader, writer)
            finally:
                writer.close()

    run(main())


async def response(reader: Reader) -> tuple[int, dict[str, str], bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = {name: value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
    status = int(head[0].split()[1])
    if headers.get("transfer-encoding") == "chunked":
        data = b""
        while size := int(await reader.readline(), 16):
            data += (await reader.readexactly(size + 2))[:-2]
        await reader.readline()
    else:
        data = await reader.readexactly(int(headers.get("content-length", "0")))
    return status, headers, data


def test_keep_alive_and_one_byte_at_a_time() -> None:
    async def body(server: Server, reader: Reader, writer: Writer) -> None:
        for count in (1, 2):
            for byte in b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % count + b"z" * count:
                writer.write(bytes([byte]))
                await writer.drain()
            status, headers, data = await response(reader)
            assert (status, data) == (200, b"POST /a %d" % count)
            assert "connection" not in headers

    talk(echo, body)


def test_pipelined_requests_are_answered_in_order() -> None:
    async def slow_first(request: Request, reply: Reply) -> Answer:
        if request.path == "/0":
            await asyncio.sleep(0.05)
        return await echo(request, reply)

    async def body(server: Server, reader: Reader, writer: Writer) -> None:
        # more than max_pipelined, so that reading stops and goes on
        writer.write(b"".join(b"GET /%d HTTP/1.1\r\n\r\n" % i for i in range(50)))
        for i in range(50):
            assert (await response(reader))[2] == b"GET /%d 0" % i

    talk(slow_first, body)


def test_a_disconnect_cancels_the_handler() -> None:
    began, cancelled = asyncio.Event(), asyncio.Event()

    async def wait(request: Request, reply: Reply) -> None:
        if request.query == "stream":
            reply.start(200)
            reply.write_now(b"x")
        try:
            began.set()
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async def body(server: Server, reader: Reader, writer: Writer) -> None:
        for query in (b"plain", b"stream"):
            began.clear()
            cancelled.clear()
            _, other = await asyncio.open_connection("127.0.0.1", server.port)
            other.write(b"GET /?%s HTTP/1.1\r\n\r\n" % query)
            await began.wait()
            await asyncio.sleep(0.05)
            assert not cancelled.is_set()
            other.close()
            await asyncio.wait_for(cancelled.wait(), 20)

    talk(wait, body)


def test_a_stream_is_chunked_and_the_connection_lives_on() -> None:
    async def stream(request: Request, reply: Reply) -> None:
        reply.start(200, [("content-type", "text/event-stream")])
        for i in range(3):
            await reply.write(b"data: %d\n\n" % i)
        await reply.finish()

    async def body(server: Server, reader: Reader, writer: Writer) -> None:
        for _ in range(2):
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            assert (await response(reader))[2] == b"data: 0\n\ndata: 1\n\ndata: 2\n\n"
        writer.write(b"GET / HTTP/1.0\r\n\r\n")  # no chunks there: ends with the connection
        assert (await reader.read()).endswith(b"\r\n\r\ndata: 0\n\ndata: 1\n\ndata: 2\n\n")

    talk(stream, body)


def test_writes_wait_for_a_slow_client() -> None:
    sent = 0

    async def flood(request: Request, reply: Reply) -> None:
        nonlocal sent
        reply.start(200)
        for _ in range(1000):
            await reply.write(b"x" * 65536)
            sent += 1
        await reply.finish()

    async def body(server: Server, reader: Reader, writer: Writer) -> None:
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        await asyncio.sleep(0.3)
        held = sent
        assert held < 500, "64 MB have gone into buffers"
        await reader.readexactly(30_000_000)
        assert sent > held

    talk(flood, body)


def test_errors_become_answers() -> None:
    async def fail(request: Request, reply: Reply) -> Answer | None:
        if request.path == "/full":
            raise CapacityError("no room", retry_after=3)
        if request.path == "/late":
            reply.start(200)
            raise CapacityError("too late for a status")
        if request.path == "/none":
            return None
        raise ZeroDivisionError

    async def body(server: Server, reader: Reader, writer: Writer) -> None:
        writer.write(b"GET /full HTTP/1.1\r\n\r\nGET /bug HTTP/1.1\r\n\r\nGET /none HTTP/1.1\r\n\r\n")
        status, headers, data = await response(reader)
        assert (status, headers["retry-after"]) == (503, "3")
        assert json.loads(data)["error"]["code"] == "no_capacity"
        assert (await response(reader))[0] == 500
        assert (await response(reader))[0] == 500
        writer.write(b"GET /late HTTP/1.1\r\n\r\n")
        got = b""
        with pytest.raises(ConnectionResetError):  # reads until it breaks
            while data := await reader.read(1000):
                got += data
            raise ConnectionResetError  # a plain end is as good: the body has no last chunk
        assert b"0\r\n\r\n" not in got

    talk(fail, body)


def test_what_is_not_http_gets_400_and_the_end() -> None:
    async def body(server: Server, reader: Reader, writer: Writer) -> None:
        writer.write(b"GET /a HTTP/1.1\r\n\r\nhello there\r\n\r\n" + b"x" * 100_000)
        assert (await response(reader))[0] == 200
        status, headers, data = await response(reader)
        assert (status, headers["connection"]) == (400, "close")
        assert json.loads(data)["error"]["code"] == "bad_framing"
        assert await reader.read() == b""

    talk(echo, body)


def test_timeouts() -> None:
    async def body(server: Server, reader: Reader, writer: Writer) -> None:
        other, half = await asyncio.open_connection("127.0.0.1", server.port)
        half.write(b"GET /a HTTP/1.1\r\nX: ")
        writer.write(b"GET /a HTTP/1.1\r\n\r\n")
        assert (await response(reader))[0] == 200
        assert await asyncio.wait_for(reader.read(), 20) == b""  # idle
        assert (await response(other))[0] == 408
        half.close()

    talk(echo, body, idle_timeout=0.6, request_timeout=0.8)


def test_a_running_handler_is_not_idle() -> None:
    async def slow(request: Request, reply: Reply) -> Answer:
        await asyncio.sleep(1.2)
        return Answer(200, "text/plain", "late")

    async def body(server: Server, reader: Reader, writer: Writer) -> None:
        writer.write(b"GET /a HTTP/1.1\r\n\r\n")
        assert (await response(reader))[2] == b"late"

    talk(slow, body, idle_timeout=0.4)


def test_expect_continue() -> None:
    async def body(server: Server, reader: Reader, writer: Writer) -> None:
        writer.write(b"POST /a HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"ok")
        assert (await response(reader))[2] == b"POST /a 2"

    talk(echo, body)


def test_head_and_204_have_no_body() -> None:
    async def nothing(request: Request, reply: Reply) -> Answer:
        return Answer(204 if request.path == "/204" else 200, "text/plain", "text")

    async def body(server: Server, reader: Reader, writer: Writer) -> None:
        writer.write(b"HEAD /a HTTP/1.1\r\n\r\nGET /204 HTTP/1.1\r\n\r\nGET /a HTTP/1.1\r\n\r\n")
        assert b"content-length: 4" in await reader.readuntil(b"\r\n\r\n")
        assert b"content-length" not in await reader.readuntil(b"\r\n\r\n")
        assert (await response(reader))[2] == b"text"

    talk(nothing, body)


def test_close_lets_running_requests_finish_and_says_so() -> None:
    began, go_on = asyncio.Event(), asyncio.Event()

    async def slow(request: Request, reply: Reply) -> Answer:
        began.set()
        await go_on.wait()
        return Answer(200, "text/plain", "done")

    async def body(server: Server, reader: Reader, writer: Writer) -> None:
        idle_reader, idle = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET /a HTTP/1.1\r\n\r\n")
        await began.wait()
        closing = asyncio.create_task(server.close(grace=60))
        assert await asyncio.wait_for(idle_reader.read(), 20) == b""  # while the other one's request runs
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", server.port)
        go_on.set()
        assert (await response(reader))[2] == b"done"
        assert await reader.read() == b""
        await closing
        assert not server.connections
        idle.close()

    talk(slow, body)


def test_close_cuts_what_does_not_finish() -> None:
    began = asyncio.Event()

    async def forever(request: Request, reply: Reply) -> None:
        began.set()
        await asyncio.sleep(60)

    async def body(server: Server, reader: Reader, writer: Writer) -> None:
        writer.write(b"GET /a HTTP/1.1\r\n\r\n")
        await began.wait()
        await asyncio.wait_for(server.close(grace=0.05), 20)
        assert not server.connections

    talk(forever, body)


def test_abort_resets() -> None:
    async def reset(request: Request, reply: Reply) -> None:
        reply.start(200)
        await reply.write(b"x")
        await asyncio.sleep(0.02)
        reply.abort()

    async def body(server: Server, reader: Reader, writer: Writer) -> None:
        writer.write(b"GET /a HTTP/1.1\r\n\r\n")
        with pytest.raises(ConnectionResetError):
            await reader.read()

    talk(reset, body)


def test_it_can_stop_listening_and_listen_again() -> None:
    async def body(server: Server, reader: Reader, writer: Writer) -> None:
        port = server.port
        await server.stop_listening()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /a HTTP/1.1\r\n\r\n")
        assert (await response(reader))[0] == 200  # open connections go on
        await server.listen_again()
        assert server.port == port
        _, other = await asyncio.open_connection("127.0.0.1", port)
        other.close()

    talk(echo, body)


def test_a_write_to_a_client_that_left_is_gone() -> None:
    seen: list[BaseException] = []

    async def write(request: Request, reply: Reply) -> None:
        reply.start(200)
        reply._transport.abort()
        try:
            reply.write_now(b"x")
        except Gone as gone:
            seen.append(gone)
            raise

    async def body(server: Server, reader: Reader, writer: Writer) -> None:
        writer.write(b"GET /a HTTP/1.1\r\n\r\n")
        await asyncio.wait_for(reader.read(), 20)
        assert len(seen) == 1

    talk(write, body)
