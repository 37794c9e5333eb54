"""The upstream: replicas that cost next to nothing, so that the proxy is what is measured.

`python -m benchmarks.gateway.stub PORT PORT …` serves one replica a port: POST answers a canned completion of ~500 B,
or, with `"stream": true`, `max_tokens` server-sent events of 250 B, one each 5 ms (`--interval`), chunked like vLLM's.
GET answers a vLLM-like metrics page (~50 KB), a model list, or an empty object (health and the like). `/stub` tells
what was sent.

Each streamed event carries `~` once and, after it, the time of its write (CLOCK_MONOTONIC, ns, 20 digits), so that a
client on the same machine can count events and take their age without parsing. The streams of one replica are written
in `--phases` groups spread over the 5 ms: 1 is an engine's step (all sequences at once), more is a fleet.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import re
import resource
import time
from functools import partial

import uvloop

from benchmarks.gateway.pages import completion, event, metrics_page, models

INTERVAL = 0.005
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)", re.IGNORECASE)
_STREAM = re.compile(rb'"stream"\s*:\s*true')
_USAGE = re.compile(rb'"include_usage"\s*:\s*true')
_MAX_TOKENS = re.compile(rb'"max_tokens"\s*:\s*(\d+)')

_COMPLETION = completion()
_HEAD = (
    b"HTTP/1.1 200 OK\r\ndate: Thu, 01 Jan 2026 00:00:00 GMT\r\nserver: uvicorn\r\n"
    b"content-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
)
_BEFORE, _AFTER = event()
_FRAME = b"%x\r\n" % (len(_BEFORE) + 20 + len(_AFTER))
_BEFORE, _AFTER = _FRAME + _BEFORE, _AFTER + b"\r\n"


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


_END = _chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"


def _usage_event(tokens: int) -> bytes:
    return _chunk(
        b'data: {"id":"chatcmpl-0","object":"chat.completion.chunk","created":1767225600,"model":"m","choices":[],'
        b'"usage":{"prompt_tokens":230,"total_tokens":%d,"completion_tokens":%d}}\n\n' % (230 + tokens, tokens)
    )


class Replica:
    """The streams of one port and their clock."""

    def __init__(self, loop: asyncio.AbstractEventLoop, phases: int, interval: float = INTERVAL) -> None:
        self.loop = loop
        self.interval = interval
        self.phases: list[dict[Connection, int]] = [{} for _ in range(phases)]
        self.turn = 0
        self.joined = 0
        self.requests = 0
        self.chunks = 0
        self.scrapes = 0
        self.late = 0  # ticks that came more than one interval late; skipped, never sent in a burst
        self.due = loop.time()
        self.step = interval / phases
        self.tick()

    def join(self, connection: Connection, tokens: int) -> None:
        self.phases[self.joined % len(self.phases)][connection] = tokens
        self.joined += 1

    def tick(self) -> None:
        streams = self.phases[self.turn]
        self.turn = (self.turn + 1) % len(self.phases)
        ended = []
        for connection, left in streams.items():
            connection.send(b"%s%020d%s" % (_BEFORE, time.monotonic_ns(), _AFTER))
            streams[connection] = left - 1
            if left <= 1:
                ended.append(connection)
        self.chunks += len(streams)
        for connection in ended:
            streams.pop(connection, None)
            connection.end_stream()
        self.due += self.step
        now = self.loop.time()
        if now > self.due + self.interval:
            self.late += 1
            self.due = now
        self.loop.call_at(self.due, self.tick)

    def running(self) -> int:
        return sum(map(len, self.phases))


class Connection(asyncio.Protocol):
    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.buffer = b""
        self.usage = b""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # TCP only
        self.transport = transport
        self.fd = transport.get_extra_info("socket").fileno()

    def connection_lost(self, exc: Exception | None) -> None:
        for streams in self.replica.phases:
            streams.pop(self, None)

    def send(self, data: bytes) -> None:
        # uvloop gathers writes until the end of the tick; a proxy must see one segment an event, as it happens
        if self.transport.get_write_buffer_size() == 0:
            try:
                sent = os.write(self.fd, data)
            except (BlockingIOError, OSError):
                sent = 0
            if sent == len(data):
                return
            data = data[sent:]
        self.transport.write(data)

    def end_stream(self) -> None:
        self.send(self.usage + _END)

    def data_received(self, data: bytes) -> None:
        if self.buffer:
            data = self.buffer + data
        while data:
            head = data.find(b"\r\n\r\n")
            if head < 0:
                break
            found = _LENGTH.search(data, 0, head)
            end = head + 4 + (int(found.group(1)) if found else 0)
            if end > len(data):
                break
            self.answer(data[:end] if end < len(data) else data, head)
            data = data[end:]
        self.buffer = data

    def answer(self, request: bytes, head: int) -> None:
        if request.startswith(b"POST"):
            self.replica.requests += 1
            if _STREAM.search(request, head) is None:
                self.transport.write(_COMPLETION)
                return
            found = _MAX_TOKENS.search(request, head)
            tokens = int(found.group(1)) if found else 100
            asked = _USAGE.search(request, head) is not None
            self.usage = _usage_event(tokens) if asked else b""
            self.send(_HEAD)
            self.replica.join(self, tokens)
            return
        path = request.split(b" ", 2)[1]
        kind = b"application/json"
        if path.startswith(b"/metrics"):
            self.replica.scrapes += 1
            kind = b"text/plain; version=0.0.4; charset=utf-8"
            body = metrics_page(self.replica.running(), 0, self.replica.chunks)
        elif path.startswith(b"/v1/models"):
            body = models()
        elif path.startswith(b"/stub"):
            r = self.replica
            counts = {"requests": r.requests, "chunks": r.chunks, "late": r.late, "scrapes": r.scrapes}
            body = json.dumps(counts).encode()
        else:
            body = b"{}"
        self.transport.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: %s\r\ncontent-length: %d\r\n\r\n%s" % (kind, len(body), body)
        )


async def serve(ports: list[int], phases: int, interval: float) -> None:
    loop = asyncio.get_running_loop()
    for port in ports:
        replica = Replica(loop, phases, interval)
        await loop.create_server(partial(Connection, replica), "127.0.0.1", port, backlog=4096)
    gc.collect()
    gc.freeze()
    await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("ports", nargs="+", type=int)
    parser.add_argument("--phases", type=int, default=5)
    parser.add_argument("--interval", type=float, default=INTERVAL, help="seconds between two events of a stream")
    args = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    uvloop.run(serve(args.ports, args.phases, args.interval))


if __name__ == "__main__":
    main()
