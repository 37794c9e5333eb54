"""A client's side of HTTP/1.1 without any manners of its own: raw bytes out, responses in, cut wherever it likes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

#: in every prompt of the run, so that one that leaks into a log is found
PROMPT_MARK = "zqx-prompt-"


class Cut(Exception):
    """The gateway closed the connection before its response was whole. `began`: some of it had come."""

    def __init__(self, began: bool) -> None:
        super().__init__("in mid-response" if began else "before any response")
        self.began = began


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytearray = field(default_factory=bytearray)
    whole: bool = False

    @property
    def stream(self) -> bool:
        return self.headers.get("content-type", "").startswith("text/event-stream")

    @property
    def closes(self) -> bool:
        return "close" in self.headers.get("connection", "").lower()

    def events(self) -> list[str]:
        """Payloads of the stream's events so far. Raises ValueError for one that is cut or no event."""
        events = []
        for block in self.body.decode().split("\n\n"):
            lines = [line for line in block.split("\n") if line and not line.startswith(":")]
            if not lines:
                continue
            if not lines[-1].startswith("data: "):
                raise ValueError(f"no event: {block[:80]!r}")
            events.append(lines[-1].removeprefix("data: "))
        return events

    def error_code(self) -> str | None:
        """`error.code` of a JSON error; None where the body is none. The emulator's own errors have a number there."""
        try:
            error = json.loads(self.body)["error"]
        except (ValueError, KeyError, TypeError):
            return None
        return str(error["code"]) if isinstance(error, dict) and error.get("message") and "code" in error else None


Pace = Callable[[], Awaitable[None]]


class Connection:
    """One connection to the gateway."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        #: what has come of the current response
        self.answer: Answer | None = None

    @classmethod
    async def open(
        cls, port: int, *, tls: ssl.SSLContext | None = None, receive_buffer: int | None = None
    ) -> Connection:
        """`receive_buffer`: bytes that the kernel may take for us; small, so that a slow reader is felt.

        Raises Cut where the gateway closes before the connection is there.
        """
        one = socket.socket()
        one.setblocking(False)
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if receive_buffer is not None:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        limit = 4096 if receive_buffer is not None else 256 * 1024
        try:
            await asyncio.get_running_loop().sock_connect(one, ("127.0.0.1", port))
            name = None if tls is None else "127.0.0.1"
            return cls(*await asyncio.open_connection(sock=one, limit=limit, ssl=tls, server_hostname=name))
        except OSError as error:
            one.close()
            raise Cut(began=False) from error

    @property
    def closed(self) -> bool:
        """The gateway has closed it, and nothing is left to read."""
        return self._reader.at_eof() or self._writer.transport.is_closing()

    async def send(self, data: bytes) -> None:
        """A gateway that has refused already may have closed: the response says more than the failure."""
        with contextlib.suppress(OSError):
            self._writer.write(data)
            await self._writer.drain()

    async def response(self, pace: Pace | None = None) -> Answer:
        """The next response, whole. Raises Cut. `pace` is awaited before each piece of the body."""
        self.answer = None
        began = False
        try:
            while True:
                head = await self._reader.readuntil(b"\r\n\r\n")
                began = True
                first, *lines = head.decode("latin-1").rstrip().split("\r\n")
                status = int(first.split(" ")[1])
                if status >= 200:
                    break
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            answer = self.answer = Answer(status, headers)
            async for piece in self._pieces(headers):
                answer.body += piece
                if pace is not None:
                    await pace()
        except (asyncio.IncompleteReadError, OSError) as error:
            partial = isinstance(error, asyncio.IncompleteReadError) and bool(error.partial)
            raise Cut(began or partial) from None
        answer.whole = True
        return answer

    async def _pieces(self, headers: dict[str, str]) -> AsyncIterator[bytes]:
        reader = self._reader
        if headers.get("transfer-encoding") == "chunked":
            while True:
                size = int((await reader.readuntil(b"\r\n")).split(b";")[0], 16)
                data = await reader.readexactly(size + 2)
                if data[-2:] != b"\r\n":
                    raise ValueError("a chunk does not end where it said")
                if not size:
                    return
                yield data[:-2]
        elif "content-length" in headers:
            left = int(headers["content-length"])
            while left:
                data = await reader.read(min(left, 65536))
                if not data:
                    raise asyncio.IncompleteReadError(b"", left)
                left -= len(data)
                yield data
        else:
            while data := await reader.read(65536):
                yield data

    async def wait_closed_by_gateway(self) -> None:
        """Read until the end."""
        with contextlib.suppress(OSError):
            while await self._reader.read(65536):
                pass

    def leave(self, *, reset: bool = False) -> None:
        """Close; `reset`: as a process that died."""
        if reset:
            self._writer.transport.abort()
        else:
            self._writer.close()


def post(
    body: dict[str, Any] | bytes,
    path: str = "/v1/chat/completions",
    *,
    key: str | None,
    version: str = "1.1",
    headers: tuple[str, ...] = (),
    chunks: int = 0,
    api_key: bool = False,
) -> bytes:
    """One request. `chunks`: send the body chunked, in so many pieces. `api_key`: the key as Anthropic's clients do."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"POST {path} HTTP/{version}", "host: gateway", "content-type: application/json", *headers]
    if key is not None:
        lines.append(f"x-api-key: {key}" if api_key else f"authorization: Bearer {key}")
    if chunks:
        size = max(1, -(-len(data) // chunks))
        pieces = [data[at : at + size] for at in range(0, len(data), size)]
        data = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
        lines.append("transfer-encoding: chunked")
    else:
        lines.append(f"content-length: {len(data)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data
