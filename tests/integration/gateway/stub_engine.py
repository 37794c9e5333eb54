"""A scripted engine and a gateway before it, in one event loop: each test says byte by byte what a replica does."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import uvloop

from kilocard.core.replica import Endpoint, Found
from kilocard.dispatch.events import Event, Tick
from kilocard.dispatch.instructions import Instruction
from kilocard.gateway.server import Gateway
from kilocard.net.client import Response, fetch
from kilocard.spec.model import (
    ClusterSpec,
    GatewaySpec,
    HoldSpec,
    Limits,
    ModelSpec,
    PoolSpec,
    TenantSpec,
    Timeouts,
)

T = TypeVar("T")
JSON_ANSWER = json.dumps(
    {
        "id": "cmpl-1",
        "object": "chat.completion",
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6},
    }
).encode()


def run(body: Coroutine[Any, Any, T], seconds: float = 120) -> T:
    """Run one test's coroutine on the gateway's own loop. Who takes longer hangs, on a busy machine too."""

    async def limited() -> T:
        async with asyncio.timeout(seconds):
            return await body

    return uvloop.run(limited())


#: seconds of one beat
BEAT = 0.01


class Beats:
    """A stopwatch for upper bounds: it counts the time in which this process runs.

    Other processes may take the processor for as long as they like: that is one beat, as a hundredth of a second is.
    Where nobody disturbs a beat lasts as long as it says.
    """

    def __init__(self, beat: float) -> None:
        self._beat = beat
        self._count = 0

    @property
    def seconds(self) -> float:
        return self._count * self._beat

    async def count(self, seconds: float) -> None:
        while self.seconds < seconds:
            await asyncio.sleep(self._beat)
            self._count += 1


@contextlib.asynccontextmanager
async def within(seconds: float, beat: float = BEAT) -> AsyncIterator[Beats]:
    """asyncio.timeout, but of the time in which this process runs."""
    beats = Beats(beat)
    async with asyncio.timeout(None) as limit:

        async def end() -> None:
            await beats.count(seconds)
            limit.reschedule(asyncio.get_running_loop().time())

        ending = asyncio.ensure_future(end())
        try:
            yield beats
        finally:
            ending.cancel()


async def until(condition: Callable[[], object], seconds: float = 20.0) -> None:
    """Wait for something that has to come, however slow the machine."""
    async with within(seconds):
        while not condition():
            await asyncio.sleep(0.005)


async def stands_still(count: Callable[[], int], beats: int = 30) -> int:
    """Wait until it is more than 0 and does not change for so many beats; returns what it is then."""
    last, since = count(), 0
    while not last or since < beats:
        await asyncio.sleep(BEAT)
        now = count()
        last, since = now, since + 1 if now == last else 0
    return last


class HandClock:
    """The gateway's clock, set by hand. It stands still until `forward`; the gateway goes on looking at it."""

    def __init__(self, setup: Setup) -> None:
        self._plane = setup.gateway.plane
        self._handle = self._plane.handle
        self._looks = 0
        self.now = self._plane.clock()
        self._plane.clock = lambda: self.now
        self._plane.handle = self._count

    def _count(self, event: Event) -> Sequence[Instruction]:
        self._looks += type(event) is Tick
        return self._handle(event)

    async def forward(self, seconds: float = 0.0) -> None:
        """Returns when the gateway has looked at the clock and done what it is time for."""
        self.now += seconds
        before = self._looks
        await until(lambda: self._looks > before)


def delta(text: str, **more: object) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    return b"data: " + json.dumps({"id": "c", "choices": [choice], **more}).encode() + b"\n\n"


ROLE = b'data: {"id":"c","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}\n\n'
STOP = b'data: {"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
USAGE = b'data: {"id":"c","choices":[],"usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}}\n\n'
DONE = b"data: [DONE]\n\n"
STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n"
    b"server: uvicorn\r\nkeep-alive: timeout=5\r\n\r\n"
)
END = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def whole(body: bytes = JSON_ANSWER, status: str = "200 OK", extra: bytes = b"") -> bytes:
    head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n".encode()
    return head + extra + b"\r\n" + body


@dataclass
class Asked:
    """One request as the engine saw it."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    number: int
    #: set when the gateway closed this connection
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Wire:
    """The engine's side of one connection."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.writer = writer

    async def send(self, data: bytes) -> None:
        if self.writer.is_closing():
            raise ConnectionResetError("the gateway has left")  # asyncio's own loop says nothing, uvloop a RuntimeError
        self.writer.write(data)
        await self.writer.drain()

    def reset(self) -> None:
        """RST, as a process that died."""
        self.writer.transport.abort()


Script = Callable[[Asked, Wire], Awaitable[None]]


async def answer(asked: Asked, wire: Wire) -> None:
    """What a healthy engine does, streaming or not."""
    if asked.json.get("stream"):
        await wire.send(STREAM_HEAD + chunk(ROLE))
        await wire.send(chunk(delta("hel")))
        await wire.send(chunk(delta("lo")) + chunk(STOP))
        if (asked.json.get("stream_options") or {}).get("include_usage"):
            await wire.send(chunk(USAGE))
        await wire.send(chunk(DONE) + END)
    else:
        await wire.send(whole())


async def hang(asked: Asked, wire: Wire) -> None:
    await asked.gone.wait()


async def die(asked: Asked, wire: Wire) -> None:
    wire.reset()


async def error500(asked: Asked, wire: Wire) -> None:
    await wire.send(whole(b'{"error":{"message":"CUDA error"}}', "500 Internal Server Error"))


def answers_when(done: asyncio.Event) -> Script:
    """Engines that have a request until then."""

    async def slow(asked: Asked, wire: Wire) -> None:
        await done.wait()
        await answer(asked, wire)

    return slow


def first_then(first: Script, other: Script) -> Script:
    """The first replica that is asked does the one, whoever is asked next the other."""
    asked_already: list[Asked] = []

    async def script(asked: Asked, wire: Wire) -> None:
        asked_already.append(asked)
        await (first if len(asked_already) == 1 else other)(asked, wire)

    return script


class StubEngine:
    """Plays `script` for each inference request; health and model list are always fine. Metrics: 404, unless set."""

    def __init__(self, script: Script = answer) -> None:
        self.script = script
        self.asked: list[Asked] = []
        self.metrics: bytes | None = None
        self.listed = b'{"object":"list","data":[{"id":"m"}]}'
        #: GETs that were asked, and whether they are answered
        self.pages_asked: list[str] = []
        self.pages_hang = False
        self.port = 0
        self.open_connections = 0
        self.accepted = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self, port: int = 0, place: socket.socket | None = None) -> None:
        """`place`: a socket that is bound already, in place of a port, which others might have taken meanwhile."""
        # Room for all that a test connects at once: a SYN that is dropped for want of it is sent again after a second.
        where: dict[str, Any] = {"host": "127.0.0.1", "port": port} if place is None else {"sock": place}
        self._server = await asyncio.start_server(self._connection, **where, limit=64 * 1024 * 1024, backlog=4096)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def die(self) -> None:
        """As a process that exits: nobody listens any more, and every connection is reset."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in list(self._writers):
            writer.transport.abort()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        self.open_connections += 1
        self.accepted += 1
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await self._requests(reader, writer)
        finally:
            self.open_connections -= 1
            self._tasks.discard(task)
            self._writers.discard(writer)
            writer.close()

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wire = Wire(writer)
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            first, *lines = head.decode("latin-1").strip().split("\r\n")
            method, target, _ = first.split(" ")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            if method == "GET":
                self.pages_asked.append(target)
                while self.pages_hang:
                    await asyncio.sleep(0.02)
                if target == "/metrics" and self.metrics is not None:
                    page = self.metrics
                    await wire.send(whole(page).replace(b"application/json", b"text/plain"))
                else:
                    await wire.send(whole(self.listed) if target != "/metrics" else whole(b"{}", "404 Not Found"))
                continue
            asked = Asked(method, target, headers, body, len(self.asked) + 1)
            self.asked.append(asked)
            watch = asyncio.ensure_future(self._watch(reader, asked))
            try:
                await self.script(asked, wire)
            except ConnectionError:  # it has seen that end before the watch did
                asked.gone.set()
                raise
            finally:
                watch.cancel()
                await asyncio.gather(watch, return_exceptions=True)
            if asked.gone.is_set() or writer.transport.is_closing():
                return

    async def _watch(self, reader: asyncio.StreamReader, asked: Asked) -> None:
        """The end of the gateway's side, seen without taking bytes of a next request."""
        while not reader.at_eof():
            try:
                await asyncio.sleep(0.01)
                if reader.exception() is not None:
                    break
            except asyncio.CancelledError:
                raise
        asked.gone.set()


@dataclass
class Setup:
    gateway: Gateway
    engines: list[StubEngine]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.gateway.port}"

    async def post(self, body: dict[str, Any] | bytes, path: str = "/v1/chat/completions", **more: Any) -> Response:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = [("content-type", "application/json"), *more.pop("headers", [])]
        return await fetch(self.url + path, method="POST", headers=headers, body=data, timeout=60, **more)

    async def chat(self, stream: bool = False, **more: Any) -> Response:
        return await self.post(
            {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": stream, **more}
        )

    def in_flight(self) -> dict[str, int]:
        snapshot = self.gateway.plane.dispatcher.snapshot(self.gateway.plane.clock())
        return {replica["id"]: replica["in_flight"] for replica in snapshot["replicas"]}

    def at_rest(self) -> bool:
        """Nothing under way, nothing held, nothing buffered: every counter is back at zero."""
        plane = self.gateway.plane
        return not plane.exchanges and plane.buffered == 0 and not any(self.in_flight().values())

    async def settles(self, seconds: float = 20.0) -> bool:
        async with within(seconds):
            while not self.at_rest():
                await asyncio.sleep(0.01)
        return True

    async def raw(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.gateway.port)


FAST = Timeouts(connect=2.0, first_token=2.0, first_token_per_prompt_token=0.0, idle=1.0, total=10.0)
#: for tests of many requests at once, which a slow machine may take seconds for
PATIENT = replace(FAST, connect=10.0, first_token=10.0, idle=10.0, total=20.0)
#: where no time-out is what a test is about
HOURS = replace(FAST, connect=3600.0, first_token=3600.0, idle=3600.0, total=3600.0)


def times_asked(setup: Setup) -> int:
    return sum(len(engine.asked) for engine in setup.engines)


@contextlib.asynccontextmanager
async def gateway_over(
    *scripts: Script,
    timeouts: Timeouts = FAST,
    limits: Limits | None = None,
    model: ModelSpec | None = None,
    gateway: GatewaySpec | None = None,
    tenants: Mapping[str, TenantSpec] | None = None,
    drain: float = 2.0,
    **pool: Any,
) -> AsyncIterator[Setup]:
    """One pool with one stub engine for each script, the gateway in front. Afterwards nothing may be left."""
    engines = [StubEngine(script) for script in scripts]
    for engine in engines:
        await engine.start()
    spec = ClusterSpec(
        gateway=replace(
            gateway or GatewaySpec(),
            listen="127.0.0.1:0",
            admin="127.0.0.1:0",
            timeouts=timeouts,
            limits=limits or Limits(),
            drain=drain,
        ),
        models={"m": model or ModelSpec("m", {"p": 1}, hold=HoldSpec(100, 2.0))},
        tenants=tenants or {},
        pools={"p": PoolSpec("p", "vllm", endpoints=tuple(engine.url for engine in engines), **pool)},
    )
    one = Gateway(spec, rng=random.Random(1))
    await one.start()
    for number, engine in enumerate(engines):
        one.apply(Found(Endpoint(f"p/{number}", "p", engine.url)))
    setup = Setup(one, engines)
    try:
        yield setup
        assert await setup.settles(), "something is still under way or not given back"
    finally:
        await one.stop()
        for engine in engines:
            await engine.stop()
