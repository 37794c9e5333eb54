"""Many clients with odd habits, engines with odd habits, and each client gets its own stream or a beginning of it.

A text in the stream says whose it is and where it belongs, so that a byte that is lost, doubled, out of its order or
another client's shows. What each side does follows from the number of the request.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
import trustme
import uvloop
from stub_engine import DONE, END, ROLE, STREAM_HEAD, Asked, Setup, Wire, answer, chunk, delta, gateway_over

from kilocard.spec.model import GatewaySpec, HedgeSpec, HoldSpec, ModelSpec, Timeouts
from kilocard.spec.services import TlsSpec

#: idle: stalled engines and clients that do not read are cut while the test runs
TIMES = Timeouts(connect=5.0, first_token=10.0, idle=1.5, total=30.0)
#: the second attempt begins while many first ones wait, and while some already say their preamble
MODEL = ModelSpec("m", {"p": 1}, hold=HoldSpec(1000, 10.0), hedge=HedgeSpec(after=0.1, budget=1.0, max_load=1.0))
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
ERROR = b'data: {"error"'
LAST = b"connection: close\r\n"

#: how an engine's stream ends, and how often
ENDS = ["whole"] * 8 + ["reset", "stall", "error", "close"]


@dataclass(frozen=True)
class Story:
    """What the engine says to one request; the same on each replica."""

    events: list[bytes]
    end: str
    #: the client asks for usage; else the gateway does, and takes it out again
    usage: bool

    @property
    def text(self) -> bytes:
        """What the client gets of it."""
        return b"".join(event for event in self.events if self.usage or b'"choices": []' not in event)


def told(number: int) -> Story:
    rng = random.Random(number)
    end = rng.choice(ENDS)
    large = rng.random() < 0.3
    events = [ROLE]
    for piece in range(rng.randrange(1, 600 if large else 60)):
        kind = rng.random()
        if kind < 0.03 and piece:  # before the first content a comment overtakes the preamble, which is held
            events.append(b": stream %d says nothing here, event %d\n\n" % (number, piece))
        elif kind < 0.06 and piece:
            usage = b'{"id": "%d", "choices": [], "usage": {"completion_tokens": %d}}' % (number, piece)
            events.append(b"data: " + usage + b"\n\n")
        else:
            events.append(delta(f"<{number}:{piece}>" + "x" * rng.choice([0, 0, 5, 50, 900, 3000, 4050, 9000])))
    return Story([*events, DONE] if end == "whole" else events, end, number % 3 == 0)


async def engine(asked: Asked, wire: Wire) -> None:
    if "user" not in asked.json:  # a probe
        await answer(asked, wire)
        return
    number = int(asked.json["user"])
    story = told(number)
    rng = random.Random(number * 1000 + asked.number)
    await asyncio.sleep(rng.choice([0.0, 0.0, 0.05, 0.15, 0.4]))
    first = asked.headers["x-request-id"].count("-") == 2
    if first and rng.random() < 0.2:
        # It dies behind its preamble: another replica begins again.
        await wire.send(STREAM_HEAD + chunk(ROLE))
        await asyncio.sleep(0.02)
        wire.reset()
        return
    cut, hurry = rng.choice(["whole", "whole", "whole", "several", "torn"]), rng.random() < 0.5
    await wire.send(STREAM_HEAD)
    events = story.events
    at = 0
    while at < len(events):
        if cut == "whole":
            data, at = chunk(events[at]), at + 1
        else:
            some = rng.randrange(1, 5)
            data = chunk(b"".join(events[at : at + some])) if rng.random() < 0.5 else b"".join(
                map(chunk, events[at : at + some])
            )  # fmt: skip
            at += some
        if cut == "torn":
            where = rng.randrange(len(data) + 1)
            await wire.send(data[:where])
            await asyncio.sleep(0)
            data = data[where:]
        await wire.send(data)
        if not hurry:
            await asyncio.sleep(rng.choice([0, 0, 0.001, 0.004]))
    if story.end == "whole":
        await wire.send(END)
    elif story.end == "error":
        await wire.send(chunk(b'data: {"error": {"message": "CUDA error", "code": 500}}\n\n') + END)
    elif story.end == "reset":
        await asyncio.sleep(0.05)
        wire.reset()
    elif story.end == "close":
        wire.writer.close()
    else:
        await asked.gone.wait()


def request(number: int, version: bytes = b"1.1", extra: bytes = LAST) -> bytes:
    asks = {"stream_options": {"include_usage": True}} if told(number).usage else {}
    body = json.dumps({"model": "m", "messages": [], "user": str(number), "stream": True, **asks}).encode()
    head = b"POST /v1/chat/completions HTTP/%b\r\nhost: x\r\n%bcontent-length: %d\r\n\r\n"
    return head % (version, extra, len(body)) + body


def unchunked(data: bytes) -> tuple[bytes, bytes | None]:
    """The body as far as it is here, and what comes behind it (None: its end is not here)."""
    body: list[bytes] = []
    at = 0
    while (end := data.find(b"\r\n", at)) >= 0:
        size = int(data[at:end], 16)
        if size == 0:
            if len(data) < end + 4:
                break
            assert data[end : end + 4] == b"\r\n\r\n"
            return b"".join(body), data[end + 4 :]
        body.append(data[end + 2 : end + 2 + size])
        at = end + 2 + size + 2
        assert data[at - 2 : at] in (b"\r\n", b"\r", b"")
    return b"".join(body), None


def judge(number: int, got: bytes, *, stayed: bool, chunked: bool = True) -> bytes:
    """Looks at one answer; returns what is behind it."""
    story = told(number)
    head, edge, rest = got.partition(b"\r\n\r\n")
    if not edge:
        assert not stayed, f"{number}: no answer"
        return b""
    assert head.startswith(b"HTTP/1.1 200 OK"), head
    assert (b"transfer-encoding: chunked" in head) == chunked
    body, behind = unchunked(rest) if chunked else (rest, b"")
    text, mark, error = body.partition(ERROR)
    if stayed:
        assert behind is not None, f"{number}: the answer has no end"
        if story.end == "whole":
            assert text == story.text and not mark, f"{number}: it is not whole"
        else:
            assert mark and error.endswith(b"}\n\n"), f"{number}: it broke without a word"
    assert story.text.startswith(text), f"{number}: not the beginning of its own stream"
    if story.end != "stall" and mark:
        assert story.end != "whole" and text == story.text, f"{number}: what came before the fault is lost"
    return behind or b""


class Client:
    """`get` gives what it got, once it or the gateway has left."""

    def __init__(self, setup: Setup, context: ssl.SSLContext | None, rng: random.Random) -> None:
        self.setup = setup
        self.context = context
        self.rng = rng

    async def open(self, receive: int = 0) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        sock = socket.socket()
        if receive:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", self.setup.gateway.port))
        if self.context is None:
            return await asyncio.open_connection(sock=sock, limit=4096)
        # No limit: a client of uvloop's that holds back what it has read forgets it when the other side ends.
        return await asyncio.open_connection(sock=sock, limit=1 << 26, ssl=self.context, server_hostname="localhost")

    async def read(self, reader: asyncio.StreamReader, most: int = 1 << 40, slow: bool = False) -> bytes:
        got = bytearray()
        with contextlib.suppress(ConnectionError):
            while len(got) < most and (data := await reader.read(1024 if slow else 65536)):
                got += data
                if slow and self.rng.random() < 0.05:
                    await asyncio.sleep(0.01)
        return bytes(got)

    async def stays(self, number: int) -> None:
        reader, writer = await self.open()
        writer.write(request(number))
        assert judge(number, await self.read(reader), stayed=True) == b""
        writer.close()

    async def reads_slowly(self, number: int) -> None:
        reader, writer = await self.open(4096)
        writer.write(request(number))
        assert judge(number, await self.read(reader, slow=True), stayed=True) == b""
        writer.close()

    async def speaks_http_1_0(self, number: int) -> None:
        reader, writer = await self.open()
        writer.write(request(number, b"1.0"))
        judge(number, await self.read(reader), stayed=True, chunked=False)
        writer.close()

    async def asks_thrice_at_once(self, number: int) -> None:
        numbers = [number, number + 100_000, number + 200_000]
        reader, writer = await self.open(self.rng.choice([0, 4096]))
        asks = [request(each, extra=b"") for each in numbers[:2]] + [request(numbers[2])]
        writer.write(asks[0])
        await asyncio.sleep(self.rng.choice([0, 0.05]))
        writer.write(asks[1] + asks[2])
        got = await self.read(reader)
        for each in numbers:
            got = judge(each, got, stayed=True)
        assert got == b""
        writer.close()

    async def resets(self, number: int) -> None:
        reader, writer = await self.open()
        writer.write(request(number))
        got = await self.read(reader, self.rng.randrange(1, 60_000)) if self.rng.random() < 0.8 else b""
        writer.transport.abort()
        judge(number, got, stayed=False)

    async def half_closes(self, number: int) -> None:
        reader, writer = await self.open()
        writer.write(request(number))
        got = await self.read(reader, self.rng.randrange(1, 60_000))
        if writer.can_write_eof():
            writer.write_eof()
        judge(number, got + await self.read(reader), stayed=False)
        writer.close()

    async def stops_reading(self, number: int) -> None:
        reader, writer = await self.open(4096)
        writer.write(request(number))
        got = await self.read(reader, 3000)
        await asyncio.sleep(2.5)
        judge(number, got + await self.read(reader, 20_000), stayed=False)
        writer.transport.abort()

    async def has_no_time(self, number: int) -> None:
        reader, writer = await self.open()
        seconds = b"%.3f" % self.rng.uniform(0.01, 0.5)
        writer.write(request(number, extra=LAST + b"x-kilocard-timeout: %b\r\n" % seconds))
        got = await self.read(reader)
        if got.startswith(b"HTTP/1.1 200"):
            text, behind = unchunked(got.partition(b"\r\n\r\n")[2])
            assert behind == b""
            text, mark, _ = text.partition(ERROR)
            assert told(number).text.startswith(text)
            assert mark or text == told(number).text
        else:
            assert got.startswith(b"HTTP/1.1 504"), got[:100]
        writer.close()


HABITS: list[Callable[[Client, int], object]] = [
    Client.stays, Client.stays, Client.stays, Client.reads_slowly, Client.speaks_http_1_0, Client.asks_thrice_at_once,
    Client.resets, Client.half_closes, Client.stops_reading, Client.has_no_time,
]  # fmt: skip


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("loop", LOOPS)
def test_each_client_gets_its_own_stream(loop: str, tls: bool, tmp_path_factory: pytest.TempPathFactory) -> None:
    context = None
    spec = GatewaySpec()
    if tls:
        ca, folder = trustme.CA(), tmp_path_factory.mktemp("tls")
        made = ca.issue_cert("localhost")
        made.cert_chain_pems[0].write_to_path(str(folder / "crt"))
        made.private_key_pem.write_to_path(str(folder / "key"))
        context = ssl.create_default_context()
        ca.configure_trust(context)
        spec = replace(spec, tls=TlsSpec(str(folder / "crt"), str(folder / "key")))

    async def story() -> None:
        async with gateway_over(engine, engine, engine, timeouts=TIMES, model=MODEL, gateway=spec) as setup:
            for listener in setup.gateway._listeners:
                for sock in listener.sockets:  # what it accepts has it from there: transports have something to keep
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            one_after_the_other = asyncio.Semaphore(60)

            async def client(number: int) -> None:
                async with one_after_the_other:
                    rng = random.Random(number)
                    await HABITS[number % len(HABITS)](Client(setup, context, rng), number)  # type: ignore[misc]

            results = await asyncio.gather(*(client(1000 + each) for each in range(200)), return_exceptions=True)
            for failed in (each for each in results if isinstance(each, BaseException)):
                raise failed

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(asyncio.wait_for(story(), 60))
