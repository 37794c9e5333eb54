"""One client connection: framing in, order kept, responses out, nothing unbounded."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import httptools

from kilocard.core.errors import BodyTooLarge, CapacityError, ClientError, HeaderTooLarge, KilocardError, RequestTimeout
from kilocard.gateway.heads import Headers, RequestHead, read_request_headers, status_line
from kilocard.wire.failure import error_body

if TYPE_CHECKING:
    from kilocard.gateway.exchange import Exchange
    from kilocard.gateway.plane import Plane

#: requests of one connection that may wait behind the running one (HTTP pipelining)
MAX_PIPELINED = 16
#: how long and how much a refused client may go on sending before the connection is cut
LINGER_SECONDS = 5.0
LINGER_BYTES = 64 * 1024 * 1024
_PLAIN_ID = frozenset(range(0x21, 0x7F))


class Arrival(NamedTuple):
    """One whole request off the wire."""

    method: bytes
    path: bytes
    query: bytes  # with its "?", or empty
    head: RequestHead
    body: bytes
    keep_alive: bool
    version: str


class ClientConnection(asyncio.Protocol):
    """Server side of one connection. Requests are answered in their order, one exchange at a time."""

    __slots__ = (
        "_arrivals",
        "_body",
        "_body_bytes",
        "_closing",
        "_current",
        "_head",
        "_head_bytes",
        "_headers",
        "_in_message",
        "_lingering",
        "_parser",
        "_queue",
        "_read_bytes",
        "_reading_paused",
        "_refusal",
        "_request_id",
        "_url",
        "can_chunk",
        "keep_alive",
        "paused",
        "plane",
        "since",
        "transport",
    )

    def __init__(self, plane: Plane) -> None:
        self.plane = plane
        self.transport: asyncio.Transport = None  # type: ignore[assignment]  # set before any other callback
        self.paused = False  # the client does not read what we write
        self.since = plane.clock()  # start of the head, last byte of the body, or start of idleness
        self.can_chunk = True
        self.keep_alive = True
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._headers: Headers = []
        self._head: RequestHead | None = None
        self._head_bytes = 0
        self._read_bytes = 0
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._in_message = False
        self._refusal: KilocardError | None = None
        self._arrivals: list[Arrival] = []
        self._queue: deque[Arrival] = deque()
        self._current: Exchange | None = None
        self._request_id = b""
        self._closing = False
        self._reading_paused = False
        self._lingering = 0  # bytes still to be thrown away; 0: not lingering

    # -- asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]  # a TCP transport reads and writes
        if not self.plane.connected(self):
            self._give_up(CapacityError("Too many connections.", code="too_many_connections"))

    def data_received(self, data: bytes) -> None:
        if self._closing:
            if self._lingering:
                self._lingering -= len(data)
                if self._lingering <= 0:
                    self.transport.abort()
            return
        self._read_bytes = len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._refusal = ClientError("Protocol upgrades are not supported.", code="upgrade_not_supported")
        except httptools.HttpParserError as error:
            self._refusal = self._refusal or ClientError(f"Not a valid HTTP/1.1 request: {error}", code="invalid_http")
        if self._in_message and self._head is None:
            self._head_bytes += len(data)
            if self._head_bytes > self.plane.limits.header:
                self._head_too_large()
        elif self._in_message:
            self.since = self.plane.clock()
        if self._arrivals:
            arrivals, self._arrivals = self._arrivals, []
            for arrival in arrivals:
                if self._current is None and not self._queue:
                    self._serve(arrival)
                else:
                    self._queue.append(arrival)
            if len(self._queue) >= MAX_PIPELINED and not self._reading_paused:
                self._reading_paused = True
                self.transport.pause_reading()
        if self._refusal is not None and self._current is None and not self._queue:
            self._give_up(self._refusal)

    def eof_received(self) -> bool:
        """Clients of an inference API don't half-close: the end of their side means that they are gone."""
        if self._current is not None:
            self.transport.abort()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        del self._parser  # it points back to us: no work for the garbage collector
        self._closing = True
        self.plane.disconnected(self)
        self.plane.buffered -= self._body_bytes + sum(len(arrival.body) for arrival in self._queue)
        self._body_bytes = 0
        self._queue.clear()
        current, self._current = self._current, None
        if current is not None:
            current.client_gone()

    def pause_writing(self) -> None:
        self.paused = True
        self.since = self.plane.clock()
        if self._current is not None:
            self._current.client_paused(True)

    def resume_writing(self) -> None:
        self.paused = False
        if self._current is not None:
            self._current.client_paused(False)

    # -- httptools

    def on_message_begin(self) -> None:
        self._in_message = True
        self._head = None
        self._head_bytes = 0
        self._url = b""
        self._headers = []
        self.since = self.plane.clock()

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        head = read_request_headers(self._headers)
        self._head = head
        limit = self.plane.limits.header
        if self._head_bytes + self._read_bytes > limit and (
            len(self._url) + sum(len(name) + len(value) + 4 for name, value in self._headers) > limit
        ):
            self._head_too_large()
        elif head.content_length is not None and head.content_length > self.plane.limits.body:
            self._too_large()
        elif head.expects_continue and self._current is None and not self._queue:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        if self._refusal is not None:
            return
        self._body_bytes += len(body)
        self.plane.buffered += len(body)
        if self._body_bytes > self.plane.limits.body:
            self._too_large()
        elif self.plane.buffered > self.plane.limits.buffered:
            self._refusal = CapacityError("The gateway's request buffers are full.", code="buffers_full")
        else:
            self._body.append(body)

    def on_message_complete(self) -> None:
        self._in_message = False
        head = self._head
        if self._refusal is not None or head is None:
            return
        pieces, self._body = self._body, []
        self._body_bytes = 0  # the arrival carries the bytes' account from here on
        path, mark, query = self._url.partition(b"?")
        if path[:1] != b"/":
            path = httptools.parse_url(self._url).path or b"/"
        arrival = Arrival(
            self._parser.get_method(),
            path,
            mark + query,
            head,
            pieces[0] if len(pieces) == 1 else b"".join(pieces),
            self._parser.should_keep_alive(),
            self._parser.get_http_version(),
        )
        self._arrivals.append(arrival)

    # -- one request after the other

    def _serve(self, arrival: Arrival) -> None:
        self.can_chunk = arrival.version == "1.1"
        self.keep_alive = arrival.keep_alive and not self.plane.draining
        given = arrival.head.request_id
        self._request_id = given if given is not None and _is_plain(given) else self.plane.new_request_id()
        self.plane.serve(self, arrival)

    def exchange_started(self, exchange: Exchange) -> None:
        """Called before the exchange is dispatched: it may end at once."""
        self._current = exchange

    def exchange_ended(self, exchange: Exchange) -> None:
        if self._current is exchange:
            self._current = None
            self.next_request()

    def next_request(self) -> None:
        """The response is written: the connection is free."""
        self.since = self.plane.clock()
        if self._closing:
            return
        if not self.keep_alive:
            self._closing = True
            self.transport.close()
            return
        while self._queue and self._current is None and not self._closing:
            self._serve(self._queue.popleft())
        if self._reading_paused and len(self._queue) < MAX_PIPELINED and not self._closing:
            self._reading_paused = False
            self.transport.resume_reading()
        if self._refusal is not None and self._current is None and not self._closing:
            self._give_up(self._refusal)

    # -- writing

    def write(self, data: bytes) -> None:
        self.transport.write(data)

    def write_head(self, status: bytes, headers: bytes, framing: bytes | None) -> None:
        """Without framing (HTTP/1.0, unknown length) the end of the connection is the end of the body."""
        if framing is None:
            self.keep_alive = False
        self.transport.write(
            b"%b%bx-request-id: %b\r\n%b%b\r\n"
            % (status, headers, self._request_id, framing or b"", self._connection_header())
        )

    def write_whole(self, status: bytes, headers: bytes, body: bytes) -> None:
        self.transport.write(
            b"%b%bx-request-id: %b\r\ncontent-length: %d\r\n%b\r\n%b"
            % (status, headers, self._request_id, len(body), self._connection_header(), body)
        )

    def write_error(self, error: KilocardError, body: bytes) -> None:
        headers = b"content-type: application/json\r\n"
        if error.retry_after is not None:
            headers += b"retry-after: %d\r\n" % max(1, round(error.retry_after))
        self.write_whole(status_line(error.http_status), headers, body)

    def write_answer(self, status: int, headers: bytes, body: bytes) -> None:
        self.write_whole(status_line(status), headers, body)

    def close_after_write(self) -> None:
        self.keep_alive = False

    def abort(self) -> None:
        self.transport.abort()

    def _connection_header(self) -> bytes:
        if not self.keep_alive:
            return b"connection: close\r\n"
        return b"" if self.can_chunk else b"connection: keep-alive\r\n"

    # -- the end

    def check(self, now: float) -> None:
        """Called about once a second: whoever does nothing for too long makes room."""
        limits = self.plane.limits
        waited = now - self.since
        if self._closing:
            if waited > (LINGER_SECONDS if self._lingering else self.plane.timeouts.idle):
                self.transport.abort()
        elif self._current is not None:
            return  # the exchange keeps its own time
        elif self._in_message:
            if waited > limits.client_idle:
                self._give_up(
                    RequestTimeout(f"The request was not complete after {limits.client_idle:g} s of waiting.")
                )
        elif self.paused:
            if waited > self.plane.timeouts.idle:
                self.transport.abort()
        elif waited > limits.keep_alive or self.plane.draining:
            self._closing = True
            self.transport.close()

    def _head_too_large(self) -> None:
        limit = self.plane.limits.header
        self._refusal = HeaderTooLarge(f"The request's head is larger than {limit} bytes (gateway.limits.header).")

    def _too_large(self) -> None:
        limit = self.plane.limits.body
        self._refusal = BodyTooLarge(
            f"The request body is larger than this gateway's limit of {limit} bytes (gateway.limits.body)."
        )

    def _give_up(self, error: KilocardError) -> None:
        """Answer with an error, then throw away what the client still sends, so that it can read the answer."""
        self.keep_alive = False
        self._request_id = self._request_id or self.plane.new_request_id()
        self.write_error(error, error_body(error))
        self.plane.telemetry.bad_request(error)
        self.plane.buffered -= self._body_bytes
        self._body_bytes = 0
        self._body.clear()
        self._closing = True
        self._lingering = LINGER_BYTES
        self.since = self.plane.clock()
        if self.transport.can_write_eof():
            self.transport.write_eof()


def _is_plain(value: bytes) -> bool:
    return 0 < len(value) <= 128 and _PLAIN_ID.issuperset(value)
