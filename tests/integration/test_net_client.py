"""The HTTP client against a real socket whose other end says exactly what the test wants."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kilocard.core.errors import UpstreamError, UpstreamTimeout, UsageError
from kilocard.net.client import Client, fetch

Script = Callable[[bytes, asyncio.StreamWriter, int], Awaitable[None]]


class Peer:
    """A server that hands each request head (and the number of its connection) to `script`."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.connections = 0
        self.open = 0
        self.requests: list[bytes] = []
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        number = self.connections
        try:
            while not writer.is_closing():
                head = await reader.readuntil(b"\r\n\r\n")
                self.requests.append(head)
                await self.script(head, writer, number)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.open -= 1
            writer.close()


@asynccontextmanager
async def peer(script: Script) -> AsyncIterator[Peer]:
    here = Peer(script)
    server = await asyncio.start_server(here.serve, "127.0.0.1", 0)
    here.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield here
    finally:
        server.close()


def says(text: str | bytes, *, then_close: bool = False, pieces: int | None = None) -> Script:
    data = text.encode() if isinstance(text, str) else text

    async def script(head: bytes, writer: asyncio.StreamWriter, number: int) -> None:
        step = pieces or len(data)
        for start in range(0, len(data), step):
            writer.write(data[start : start + step])
            await writer.drain()
            if pieces:
                await asyncio.sleep(0)
        if then_close:
            writer.close()

    return script


def run(test: Awaitable[Any]) -> Any:
    async def whole() -> Any:
        result = await test

        def left() -> list[asyncio.Task[Any]]:
            others = asyncio.all_tasks() - {asyncio.current_task()}
            return [t for t in others if "Peer.serve" not in repr(t)]

        await until(lambda: not left())  # the other end sees the close
        return result

    return asyncio.run(whole())


async def until(condition: Callable[[], object]) -> None:
    """Whatever else this machine does meanwhile."""
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)


HELLO = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A: 1\r\nx-a: 2\r\n\r\nhello"


@pytest.mark.parametrize(
    ("answer", "close", "body"),
    [
        (HELLO, False, b"hello"),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\nT: 1\r\n\r\n",
            False,
            b"hello",
        ),
        ("HTTP/1.0 200 OK\r\n\r\nhello", True, b"hello"),
        ("HTTP/1.1 100 Continue\r\n\r\n" + HELLO, False, b"hello"),
        ("HTTP/1.1 204 No Content\r\n\r\n", False, b""),
    ],
)
@pytest.mark.parametrize("pieces", [None, 1])
def test_framings(answer: str, close: bool, body: bytes, pieces: int | None) -> None:
    async def test() -> None:
        async with peer(says(answer, then_close=close, pieces=pieces)) as other:
            response = await fetch(other.url + "/p", timeout=5)
            assert response.body == body
            assert response.status in (200, 204)
            if answer == HELLO:
                assert response.headers["x-a"] == "1, 2"

    run(test())


def test_an_error_status_is_a_response() -> None:
    async def test() -> None:
        async with peer(says("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n")) as other:
            assert (await fetch(other.url, timeout=5)).status == 503

    run(test())


def test_head_has_no_body_whatever_its_length_says() -> None:
    async def test() -> None:
        async with peer(says("HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n")) as other:
            response = await fetch(other.url, method="HEAD", timeout=5)
            assert response.headers["content-length"] == "99999999"
            assert response.body == b""

    run(test())


@pytest.mark.parametrize(
    ("answer", "code", "words"),
    [
        ("", "reset", "without an answer"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", "reset", "in the middle"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhe", "reset", "in the middle"),
        ("SSH-2.0-OpenSSH_9.2\r\n", "protocol", "not HTTP"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n", "too_large", "larger than 1000"),
        ("HTTP/1.1 200 OK\r\n\r\n" + "x" * 2000, "too_large", "larger than 1000"),
        ("HTTP/1.1 200 OK\r\nX: " + "x" * 70_000 + "\r\n\r\n", "protocol", "head is larger"),
    ],
)
def test_faults_name_the_url_and_a_code(answer: str, code: str, words: str) -> None:
    async def test() -> None:
        async with peer(says(answer, then_close=True)) as other:
            with pytest.raises(UpstreamError, match=words) as caught:
                await fetch(other.url + "/thing", timeout=5, max_bytes=1000)
            assert caught.value.code == code
            assert str(caught.value).startswith(other.url + "/thing")

    run(test())


def test_nobody_listens() -> None:
    async def test() -> None:
        async with peer(says(HELLO)) as other:
            url = other.url
        with pytest.raises(UpstreamError, match="can't connect") as caught:
            await fetch(url, timeout=5)
        assert caught.value.code == "connect_failed"
        with pytest.raises(UpstreamError, match=r"no-such-host\.invalid.*can't connect"):
            await fetch("http://no-such-host.invalid/", timeout=60)  # where no name server answers that takes its time

    run(test())


def test_urls_that_are_not_http_are_refused() -> None:
    with pytest.raises(UsageError, match="write http://host:port"):
        run(fetch("localhost:8000", timeout=1))


@pytest.mark.parametrize("answer", ["", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"])
def test_a_time_out_names_the_url_and_closes_the_connection(answer: str) -> None:
    async def test() -> None:
        async with peer(says(answer or " ", pieces=None) if answer else hang) as other:
            began = time.monotonic()
            with pytest.raises(UpstreamTimeout, match=other.url) as caught:
                await fetch(other.url, timeout=0.1)
            assert time.monotonic() - began < 20
            assert caught.value.code == "upstream_timeout"
            await until(lambda: other.open == 0)

    async def hang(head: bytes, writer: asyncio.StreamWriter, number: int) -> None:
        pass

    run(test())


def test_a_cancelled_call_closes_its_connection() -> None:
    async def test() -> None:
        asked = asyncio.Event()

        async def hang(head: bytes, writer: asyncio.StreamWriter, number: int) -> None:
            asked.set()

        async with peer(hang) as other, Client() as client:
            task = asyncio.create_task(client.fetch(other.url, timeout=60))
            await asked.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await until(lambda: other.open == 0)

    run(test())


def test_a_client_uses_its_connection_again() -> None:
    async def test() -> None:
        async with peer(says(HELLO)) as other, Client() as client:
            for _ in range(5):
                assert (await client.fetch(other.url, timeout=5)).body == b"hello"
            assert other.connections == 1
            assert b"Connection: close" not in other.requests[0]
            await asyncio.gather(*(client.fetch(other.url, timeout=5) for _ in range(4)))
            assert other.connections <= 4
        await until(lambda: other.open == 0)

    run(test())


def test_idle_connections_are_closed_in_time() -> None:
    async def test() -> None:
        async with peer(says(HELLO)) as other, Client(idle_seconds=0.5) as client:
            await client.fetch(other.url, timeout=5)
            assert other.open == 1
            await until(lambda: other.open == 0)
            await client.fetch(other.url, timeout=5)
            assert other.connections == 2

    run(test())


def keep_alive_race() -> Script:
    """Answers the first request of the first connection, then drops what follows on it without a byte."""
    asked = 0

    async def script(head: bytes, writer: asyncio.StreamWriter, number: int) -> None:
        nonlocal asked
        asked += 1
        if asked == 2:
            writer.close()
        else:
            writer.write(HELLO.encode())

    return script


def test_a_reused_connection_that_dies_unheard_is_replaced_once() -> None:
    async def test() -> None:
        async with peer(keep_alive_race()) as other, Client() as client:
            await client.fetch(other.url, timeout=5)
            assert (await client.fetch(other.url, timeout=5)).body == b"hello"
            assert other.connections == 2

    run(test())


def test_a_post_is_not_sent_twice() -> None:
    async def test() -> None:
        async with peer(keep_alive_race()) as other, Client() as client:
            await client.fetch(other.url, timeout=5)
            with pytest.raises(UpstreamError, match="without an answer"):
                await client.fetch(other.url, method="POST", timeout=5)

    run(test())


def test_a_second_answer_is_never_taken_for_the_next_one() -> None:
    async def test() -> None:
        evil = HELLO + "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"
        async with peer(says(evil)) as other, Client() as client:
            for _ in range(3):
                response = await client.fetch(other.url, timeout=5)
                assert (response.status, response.body) == (200, b"hello")
            assert other.connections == 3

    run(test())


def test_a_stream_comes_piece_by_piece_and_stops_when_left() -> None:
    async def test() -> None:
        go_on = asyncio.Event()

        async def script(head: bytes, writer: asyncio.StreamWriter, number: int) -> None:
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n")
            await go_on.wait()
            while True:
                writer.write(b"4\r\nmore\r\n")
                await writer.drain()
                await asyncio.sleep(0.01)

        async with peer(script) as other, Client() as client:
            async with client.stream(other.url, timeout=5, idle=5) as response:
                assert response.status == 200
                assert await anext(response) == b"first"
                go_on.set()
                assert await anext(response) == b"more"
            await until(lambda: other.open == 0)

    run(test())


def test_a_silent_stream_times_out() -> None:
    async def test() -> None:
        async with peer(says("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")) as other, Client() as client:
            with pytest.raises(UpstreamTimeout, match=r"nothing came for 0\.1 s"):
                async with client.stream(other.url, timeout=5, idle=0.1) as response:
                    async for piece in response:
                        assert piece == b"half"

    run(test())


def test_a_fast_sender_is_held_back_by_a_slow_reader() -> None:
    async def test() -> None:
        sent = 0

        async def script(head: bytes, writer: asyncio.StreamWriter, number: int) -> None:
            nonlocal sent
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
            while True:
                writer.write(b"x" * 65536)
                await writer.drain()
                sent += 65536

        async with peer(script) as other, Client() as client, client.stream(other.url, timeout=5) as response:
            await anext(response)
            await asyncio.sleep(0.3)
            assert sent < 32 * 1024 * 1024  # socket buffers and ours, not a gigabyte

    run(test())
