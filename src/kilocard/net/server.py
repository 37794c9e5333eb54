"""A small HTTP/1.1 server: one task per request, keep-alive, pipelining in order, bounded buffers.

    async def handler(request, reply):
        return Answer(200, "text/plain", "hello")       # or: await reply.send(...), or reply.start(...) and write

    async with Server(handler) as server:
        port = await server.start("127.0.0.1", 0)

The handler's task is cancelled when its client disconnects.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

from kilocard.core.errors import BackendError
from kilocard.net.connection import Connection
from kilocard.net.reply import Answer, Gone, Reply
from kilocard.wire.http1 import MAX_BODY_BYTES, MAX_HEAD_BYTES, Request

__all__ = ["Answer", "Gone", "Handler", "Reply", "Request", "Server"]

log = logging.getLogger(__name__)

Handler = Callable[[Request, Reply], Awaitable[Answer | tuple[int, str, bytes | str] | None]]


class Server:
    """Serves `handler` on one address.

    A handler answers through its Reply or returns (status, content type, body). A KilocardError that it raises
    before the response has started becomes an OpenAI-shaped error body with the error's status; any other exception
    becomes a 500 and a log entry. After the start, both cut the connection: a broken body must look broken.

    idle_timeout: seconds an idle connection is kept (uvicorn's default, 5, is what engines do).
    request_timeout: seconds for a request to arrive whole, else 408.
    headers: added to every response.
    """

    def __init__(
        self,
        handler: Handler,
        *,
        idle_timeout: float = 5.0,
        request_timeout: float = 60.0,
        max_head_bytes: int = MAX_HEAD_BYTES,
        max_body_bytes: int = MAX_BODY_BYTES,
        max_pipelined: int = 16,
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        self.handler = handler
        self.idle_timeout = idle_timeout
        self.request_timeout = request_timeout
        self.max_head_bytes = max_head_bytes
        self.max_body_bytes = max_body_bytes
        self.max_pipelined = max_pipelined
        self.headers = headers
        self.connections: set[Connection] = set()
        #: responses from now on say "connection: close"
        self.closing = False
        self.port = 0
        self._host = ""
        self._listener: asyncio.Server | None = None

    async def start(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        backlog: int = 2048,
        way_out: str = "Choose another one, or 0 for any free port.",
    ) -> int:
        """Listen; returns the actual port. Raises BackendError when the address can't be had, with `way_out`."""
        if self._listener is not None:
            raise RuntimeError("the server is listening already")
        loop = asyncio.get_running_loop()
        try:
            self._listener = await loop.create_server(
                lambda: Connection(self), host, port, backlog=backlog, reuse_address=True
            )
        except OSError as error:
            raise BackendError(
                f"can't listen on {host}:{port}: {error.strerror or error}. "
                f"Is another program using the port? {way_out}",
                code="address_in_use",
            ) from error
        self._host = host
        self.port = self._listener.sockets[0].getsockname()[1]
        self.closing = False
        return self.port

    async def stop_listening(self) -> None:
        """Refuse new connections; the ones that are open go on."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()
            await asyncio.sleep(0)  # uvloop closes the socket in its next turn

    async def listen_again(self) -> None:
        """After stop_listening: the same address as before."""
        await self.start(self._host, self.port)

    async def close(self, grace: float = 5.0) -> None:
        """Stop listening, let running requests finish for `grace` seconds, then cut what is left."""
        self.closing = True
        await self.stop_listening()
        for connection in tuple(self.connections):
            connection.close_when_idle()
        if self.connections and grace > 0:
            left = [connection.closed for connection in self.connections]
            await asyncio.wait(left, timeout=grace)
        for connection in tuple(self.connections):
            connection.cut()
        if self.connections:
            await asyncio.wait([connection.closed for connection in self.connections], timeout=1.0)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # An error inside the block wants out, not a grace period.
        await self.close(grace=0.0 if kind is not None else 5.0)
