"""A chat completions server that is told when to send each token, and that notes when it really did.

    server = TimedServer(log_to)                # a process of its own, on a free port
    body = timed_body("a", chunks=20, first_s=0.1, gap_s=0.02)
    …
    server.log()["a"]                           # Sent: the times at which the tokens of request "a" left

The body of a request says what to do with it (`Script`), so that a load tester's numbers can be compared with the
truth, on the same monotonic clock. One thread and one epoll of its own: it shares no code with the client.
"""

from __future__ import annotations

import heapq
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
import urllib.request
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

FAULTS = (
    "close_before",  # reads the request and closes
    "reset_before",
    "status_429",
    "status_503",
    "close_in_stream",  # after half of the chunks, without the end of the framing
    "reset_in_stream",
    "error_event",  # after half of the chunks
    "no_done",  # after half of the chunks a clean end of the message
    "silent",  # answers nothing
    "silent_head",  # sends a head and nothing more
    "close_after",  # Connection: close, the body ends with the connection
    "drop_after",  # a whole answer, and the connection is closed as soon as the next request comes
    "held_back",  # empty deltas, all text in the last chunk
)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Script:
    """What becomes of one request. Seconds."""

    id: str
    chunks: int = 8
    #: from the arrival of the request to the first token, and from token to token
    first_s: float = 0.05
    gap_s: float = 0.02
    #: gaps are drawn from gap_s × (1 ± spread), by `seed`
    spread: float = 0.0
    seed: int = 0
    #: tokens leave on a common beat of `gap_s`, all streams together, as an engine's steps end
    beat: bool = False
    #: the text in a token, bytes
    token_bytes: int = 4
    fault: str | None = None


@dataclass(slots=True)
class Sent:
    """time.monotonic_ns() when the request was read and when each token had been handed to the kernel; and when that
    was about to be done, for a server that is stopped in between does not know when its token left."""

    received_ns: int
    sent_ns: list[int] = field(default_factory=list)
    began_ns: list[int] = field(default_factory=list)


def timed_body(id: str, *, stream: bool = True, **script: Any) -> bytes:
    """The body of a request whose answer follows this script."""
    made = Script(id, **script)
    assert made.fault is None or made.fault in FAULTS
    return json.dumps(
        {
            "model": "timed",
            "messages": [{"role": "user", "content": "x"}],
            "max_tokens": made.chunks,
            "stream": stream,
            "script": asdict(made),
        }
    ).encode()


class TimedServer:
    """The server as a child process, pinned to `core`. Use it as a context manager."""

    def __init__(self, core: int | None = None) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", str(Path(__file__).resolve()), "" if core is None else str(core)],
            stdout=subprocess.PIPE,
            stdin=subprocess.PIPE,  # its end is our end
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())
        self.pid = self._process.pid
        self.url = f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> TimedServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(10)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def log(self) -> dict[str, Sent]:
        """What was sent so far, by the scripts' ids. The server does nothing else while it answers."""
        with urllib.request.urlopen(f"{self.url}/log", timeout=60) as answer:
            return {id: Sent(*entry) for id, entry in json.load(answer).items()}

    def stall(self, seconds: float, *, after_s: float = 0.0) -> None:
        """The whole server stands still for so long."""
        body = json.dumps({"seconds": seconds, "after": after_s}).encode()
        urllib.request.urlopen(f"{self.url}/stall", body, timeout=10).close()


class _Stream:
    """One connection, and the answer that is under way on it."""

    def __init__(self, server: _Server, sock: socket.socket) -> None:
        self.server, self.sock, self.input = server, sock, b""
        self.script: dict[str, Any] = {}
        self.index = 0
        self.sent: list[int] = []
        self.drop = False

    def read(self) -> None:
        try:
            data = self.sock.recv(262144)
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        self.input += data
        head, found, rest = self.input.partition(b"\r\n\r\n")
        if not found:
            return
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)
        if len(rest) < length:
            return
        self.input = rest[length:]
        self.request(head.split(b" ")[1], rest[:length])

    def request(self, path: bytes, body: bytes) -> None:
        now = time.monotonic_ns()
        if path == b"/log":
            self.whole(json.dumps(self.server.log).encode())
        elif path == b"/stall":
            wish = json.loads(body)
            self.server.at(now + int(wish["after"] * 1e9), lambda: time.sleep(wish["seconds"]))
            self.whole(b"{}")
        elif self.drop:
            self.close()
        else:
            self.begin(json.loads(body), now)

    def whole(self, body: bytes, status: bytes = b"200 OK") -> None:
        head = b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (status, len(body))
        self.sock.setblocking(True)
        self.sock.sendall(head + body)
        self.sock.setblocking(False)

    def begin(self, asked: dict[str, Any], now: int) -> None:
        script = self.script = asked["script"]
        self.index, self.sent, self.began = 0, list[int](), list[int]()
        self.server.log[script["id"]] = (now, self.sent, self.began)
        fault = script["fault"]
        text = "x" * script["token_bytes"]
        self.chunk = _chunk({"content": "" if fault == "held_back" else text})
        self.framed = fault != "close_after"
        if fault == "close_before":
            self.close()
        elif fault == "reset_before":
            self.reset()
        elif fault and fault.startswith("status_"):
            self.whole(b'{"error":{"message":"told to","code":"told"}}', fault[7:].encode() + b" Told")
        elif fault == "silent":
            return
        elif not asked.get("stream"):
            self.server.at(now + int((script["first_s"] + script["gap_s"] * script["chunks"]) * 1e9), self.not_streamed)
        else:
            self.send(HEAD if self.framed else HEAD.replace(b"Transfer-Encoding: chunked", b"Connection: close"))
            if fault != "silent_head":
                self.next_at(now + int(script["first_s"] * 1e9))

    def not_streamed(self) -> None:
        count = self.script["chunks"]
        choice = {"index": 0, "message": {"role": "assistant", "content": "x" * count}, "finish_reason": "length"}
        usage = {"prompt_tokens": 1, "completion_tokens": count}
        self.began.append(time.monotonic_ns())
        self.whole(json.dumps({"object": "chat.completion", "choices": [choice], "usage": usage}).encode())
        self.sent.append(time.monotonic_ns())

    def next_at(self, due: int) -> None:
        if self.script["beat"]:
            beat = int(self.script["gap_s"] * 1e9)
            due = -(-due // beat) * beat
        self.server.at(due, lambda: self.token(due))

    def token(self, due: int) -> None:
        script, fault = self.script, self.script["fault"]
        if self.sock.fileno() < 0:
            return
        half = self.index >= script["chunks"] // 2
        if half and fault in ("close_in_stream", "reset_in_stream", "error_event", "no_done"):
            self.break_off(fault)
            return
        data = self.framed_chunk(self.chunk)
        self.began.append(time.monotonic_ns())
        self.send(data)
        self.sent.append(time.monotonic_ns())
        self.index += 1
        if self.index < script["chunks"]:
            gap = script["gap_s"] * (1 + script["spread"] * (2 * self.draw() - 1))
            self.next_at(due + (1 if script["beat"] else int(gap * 1e9)))
        else:
            self.end()

    def draw(self) -> float:
        """0 to 1, by seed and index: no generator to keep for each stream."""
        return float((self.script["seed"] * 7919 + self.index * 104729) % 1009 / 1009)

    def framed_chunk(self, data: bytes) -> bytes:
        return b"%x\r\n%b\r\n" % (len(data), data) if self.framed else data

    def break_off(self, fault: str) -> None:
        if fault == "reset_in_stream":
            self.reset()
        elif fault == "close_in_stream":
            self.close()
        elif fault == "error_event":
            self.send(self.framed_chunk(b'data: {"error":{"message":"told to","code":500}}\n\n') + b"0\r\n\r\n")
        else:
            self.send(b"0\r\n\r\n")

    def end(self) -> None:
        count = self.script["chunks"]
        last = _chunk({"content": "y" * 40} if self.script["fault"] == "held_back" else {}, "length")
        usage = b'data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":%d}}\n\n' % count
        self.send(self.framed_chunk(last + usage + b"data: [DONE]\n\n") + (b"0\r\n\r\n" if self.framed else b""))
        if not self.framed:
            self.close()
        self.drop = self.script["fault"] == "drop_after"

    def send(self, data: bytes) -> None:
        try:
            if self.sock.send(data) != len(data):
                raise SystemExit("the client does not read")
        except OSError:
            self.close()

    def reset(self) -> None:
        if self.sock.fileno() >= 0:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close()

    def close(self) -> None:
        if self.sock.fileno() >= 0:
            self.server.forget(self.sock)
            self.sock.close()


def _chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    """About 250 bytes, as vLLM's."""
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish, "token_ids": None}
    event = {"id": f"chatcmpl-{'0' * 32}", "object": "chat.completion.chunk", "created": 1, "model": "timed"}
    return b"data: " + json.dumps({**event, "choices": [choice]}, separators=(",", ":")).encode() + b"\n\n"


class _Server:
    def __init__(self) -> None:
        self.log: dict[str, tuple[int, list[int], list[int]]] = {}
        self.epoll = select.epoll()
        self.streams: dict[int, _Stream] = {}
        self.timers: list[tuple[int, int, Any]] = []
        self.count = 0
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
        self.listener.setblocking(False)
        self.epoll.register(self.listener, select.EPOLLIN)
        self.epoll.register(0, select.EPOLLIN | select.EPOLLHUP)
        print(self.listener.getsockname()[1], flush=True)

    def at(self, when: int, what: Any) -> None:
        self.count += 1
        heapq.heappush(self.timers, (when, self.count, what))

    def forget(self, sock: socket.socket) -> None:
        self.streams.pop(sock.fileno(), None)
        self.epoll.unregister(sock)

    def run(self) -> None:
        while True:
            wait = (self.timers[0][0] - time.monotonic_ns()) * 1e-9 if self.timers else 1.0
            if wait > 0:
                select.select([self.epoll], [], [], wait)
            for descriptor, _ in self.epoll.poll(0):
                if descriptor == 0:
                    return
                if descriptor == self.listener.fileno():
                    self.accept()
                elif descriptor in self.streams:
                    self.streams[descriptor].read()
            for _ in range(256):
                if not self.timers or self.timers[0][0] > time.monotonic_ns():
                    break
                heapq.heappop(self.timers)[2]()

    def accept(self) -> None:
        for _ in range(64):
            try:
                sock, _ = self.listener.accept()
            except BlockingIOError:
                return
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.streams[sock.fileno()] = _Stream(self, sock)
            self.epoll.register(sock, select.EPOLLIN)


if __name__ == "__main__":
    import gc
    import resource

    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if sys.argv[1]:
        os.sched_setaffinity(0, {int(sys.argv[1])})
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    gc.disable()
    _Server().run()
