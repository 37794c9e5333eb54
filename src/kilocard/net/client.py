"""HTTP/1.1 client for what is not the hot path: health checks, admin calls, the Kubernetes API.

    response = await fetch("http://127.0.0.1:8001/state", timeout=2.0)

    async with Client() as client:                      # keeps connections between calls
        await client.fetch(url, timeout=2.0)
        async with client.stream(url, timeout=5.0) as response:
            async for piece in response: ...

Bad URLs raise UsageError. Everything that the other side does wrong is an UpstreamError whose message starts with
the URL; `code` is one of connect_failed, tls_failed, reset, protocol, too_large. Time-outs are UpstreamTimeout
(code upstream_timeout). A cancelled or timed-out call leaves no connection and no task behind.
"""

from __future__ import annotations

import asyncio
import ssl as tls
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import NamedTuple, Self

from kilocard.core.errors import UpstreamError, UpstreamTimeout
from kilocard.net.exchange import Connection
from kilocard.net.target import Target, parse_target, request_bytes

MAX_BYTES = 8 * 1024 * 1024
#: idle connections are closed before the engines' 5 s keep-alive ends, so that no request meets a closing one
IDLE_SECONDS = 3.0
#: idle connections kept for one host
IDLE_PER_HOST = 8
#: may be sent twice without harm (RFC 9110 §9.2.2)
IDEMPOTENT = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})

Headers = Iterable[tuple[str, str]]
_Place = tuple[str, str, int]


class Response(NamedTuple):
    """Header names are lower case; repeated ones are joined by ", "."""

    status: int
    headers: dict[str, str]
    body: bytes


class StreamedResponse:
    """A response whose body is read piece by piece, as it comes: iterate once."""

    def __init__(self, connection: Connection, url: str, idle: float | None) -> None:
        self.status = connection.status
        self.headers = connection.headers
        self._connection = connection
        self._url = url
        self._idle = idle

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        try:
            async with asyncio.timeout(self._idle):
                piece = await self._connection.chunk()
        except TimeoutError as error:
            raise UpstreamTimeout(f"{self._url}: nothing came for {self._idle:g} s") from error
        if piece is None:
            raise StopAsyncIteration
        return piece

    async def read(self, max_bytes: int = MAX_BYTES) -> bytes:
        """The rest of the body. Raises UpstreamError (too_large) beyond `max_bytes`."""
        pieces, size = [], 0
        async for piece in self:
            size += len(piece)
            if size > max_bytes:
                raise _too_large(self._url, max_bytes)
            pieces.append(piece)
        return b"".join(pieces)


class Client:
    """Keeps idle connections and uses them again. `ssl` is for https URLs; None: the system's certificates.

    A reused connection that dies before a byte of the response is replaced by a new one once, for methods that may
    be repeated. Close it, or use it as a context manager. For one event loop.
    """

    def __init__(
        self, *, ssl: tls.SSLContext | None = None, keep_alive: bool = True, idle_seconds: float = IDLE_SECONDS
    ) -> None:
        self._ssl = ssl
        self._idle_seconds = idle_seconds
        self._idle: dict[_Place, list[tuple[float, Connection]]] = {}
        self._sweep: asyncio.TimerHandle | None = None
        self._keep_alive = keep_alive

    async def fetch(
        self,
        url: str,
        *,
        method: str = "GET",
        headers: Headers = (),
        body: bytes = b"",
        timeout: float,  # noqa: ASYNC109  # one deadline over connect, head and body, named in the error
        max_bytes: int = MAX_BYTES,
    ) -> Response:
        """One request and its whole response within `timeout` seconds. Any status is a response, not an error."""
        target = parse_target(url)
        try:
            async with (
                asyncio.timeout(timeout),
                self._exchange(target, method, tuple(headers), body) as connection,
            ):
                length = connection.headers.get("content-length", "")
                if method != "HEAD" and length.isdecimal() and int(length) > max_bytes:
                    raise _too_large(url, max_bytes)
                content = await StreamedResponse(connection, url, None).read(max_bytes)
                return Response(connection.status, connection.headers, content)
        except TimeoutError as error:
            raise UpstreamTimeout(f"{url}: no whole answer within {timeout:g} s") from error

    @asynccontextmanager
    async def stream(
        self,
        url: str,
        *,
        method: str = "GET",
        headers: Headers = (),
        body: bytes = b"",
        timeout: float,  # noqa: ASYNC109  # until the head is here; named in the error
        idle: float | None = None,
    ) -> AsyncIterator[StreamedResponse]:
        """A response read as it comes. `timeout` is for the head, `idle` for the wait between two pieces."""
        target = parse_target(url)
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(timeout):
                    exchange = self._exchange(target, method, tuple(headers), body)
                    connection = await stack.enter_async_context(exchange)
            except TimeoutError as error:
                raise UpstreamTimeout(f"{url}: no answer within {timeout:g} s") from error
            yield StreamedResponse(connection, url, idle)

    async def close(self) -> None:
        """Close idle connections. Calls that are under way go on."""
        self._keep_alive = False
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        for kept in self._idle.values():
            for _, connection in kept:
                connection.abort()
        self._idle.clear()
        await asyncio.sleep(0)  # lets the transports tell their sockets

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.close()

    # --- one exchange ---

    @asynccontextmanager
    async def _exchange(
        self, target: Target, method: str, headers: tuple[tuple[str, str], ...], body: bytes
    ) -> AsyncIterator[Connection]:
        """A connection whose response head has been read. Kept if the body is read to its end, else aborted."""
        method = method.upper()
        request = request_bytes(target, method, headers, body, keep_alive=self._keep_alive)
        connection = self._reusable(target)
        reused = connection is not None
        if connection is None:
            connection = await self._connect(target)
        finished = False
        try:
            connection.send(request, url=target.url, head_only=method == "HEAD")
            try:
                await connection.head()
            except UpstreamError:
                if not reused or connection.got_bytes or method not in IDEMPOTENT:
                    raise
                connection.abort()
                connection = await self._connect(target)
                connection.send(request, url=target.url, head_only=method == "HEAD")
                await connection.head()
            yield connection
            finished = self._keep_alive and connection.release()
        finally:
            if finished and self._keep_alive:
                self._keep(target, connection)
            else:
                connection.abort()

    async def _connect(self, target: Target) -> Connection:
        loop = asyncio.get_running_loop()
        context = None
        if target.scheme == "https":
            if self._ssl is None:
                self._ssl = tls.create_default_context()
            context = self._ssl
        try:
            _, connection = await loop.create_connection(Connection, target.host, target.port, ssl=context)
        except tls.SSLError as error:
            raise UpstreamError(f"{target.url}: TLS failed: {error}", code="tls_failed") from error
        except (OSError, UnicodeError) as error:  # UnicodeError: a host name that no DNS could carry
            why = getattr(error, "strerror", None) or str(error)
            raise UpstreamError(f"{target.url}: can't connect: {why}", code="connect_failed") from error
        return connection

    # --- idle connections ---

    def _reusable(self, target: Target) -> Connection | None:
        kept = self._idle.get(target[1:4], [])
        now = asyncio.get_running_loop().time()
        while kept:
            since, connection = kept.pop()
            if connection.is_idle and now - since < self._idle_seconds:
                return connection
            connection.abort()
        return None

    def _keep(self, target: Target, connection: Connection) -> None:
        loop = asyncio.get_running_loop()
        kept = self._idle.setdefault(target[1:4], [])
        kept.append((loop.time(), connection))
        if len(kept) > IDLE_PER_HOST:
            kept.pop(0)[1].abort()
        if self._sweep is None:
            self._sweep = loop.call_later(self._idle_seconds, self._close_old)

    def _close_old(self) -> None:
        self._sweep = None
        loop = asyncio.get_running_loop()
        now = loop.time()
        for place in list(self._idle):
            young = []
            for since, connection in self._idle[place]:
                if connection.is_idle and now - since < self._idle_seconds:
                    young.append((since, connection))
                else:
                    connection.abort()
            if young:
                self._idle[place] = young
            else:
                del self._idle[place]
        if self._idle:
            self._sweep = loop.call_later(self._idle_seconds / 2, self._close_old)


async def fetch(
    url: str,
    *,
    method: str = "GET",
    headers: Headers = (),
    body: bytes = b"",
    timeout: float,  # noqa: ASYNC109  # one deadline over connect, head and body, named in the error
    max_bytes: int = MAX_BYTES,
    ssl: tls.SSLContext | None = None,
) -> Response:
    """One request on a connection of its own, closed afterwards. See Client.fetch."""
    client = Client(ssl=ssl, keep_alive=False)
    return await client.fetch(url, method=method, headers=headers, body=body, timeout=timeout, max_bytes=max_bytes)


def _too_large(url: str, max_bytes: int) -> UpstreamError:
    return UpstreamError(f"{url}: the answer is larger than {max_bytes} bytes", code="too_large")
