"""One connection to a replica.

A request written just as the engine closes an idle connection shows as a reset before any byte on a reused connection;
it is repeated once on a fresh one and held against nobody (kserve#5446).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import httptools

from kilocard.core.errors import UpstreamError
from kilocard.dispatch.events import Fault
from kilocard.gateway.head_memo import END
from kilocard.gateway.heads import NO_BODY, ResponseHead, read_response_head
from kilocard.gateway.one_chunk import BEGINS, MAX_CHUNK
from kilocard.gateway.outbox import Posting

if TYPE_CHECKING:
    from kilocard.gateway.passing import Passing
    from kilocard.gateway.receiver import Receiver
    from kilocard.gateway.replica_connections import ReplicaConnections

#: a response head larger than this is a fault of the replica
MAX_HEAD = 64 * 1024
_CR: Final = 0x0D
_LF: Final = 0x0A


class UpstreamConnection(Posting):
    """One HTTP/1.1 connection to a replica; carries one exchange at a time.

    As with requests, llhttp judges the head and takes chunked bodies apart; a body with Content-Length is counted here.
    """

    __slots__ = (
        "_between", "_body", "_chunk_ended", "_complete", "_got_bytes", "_head", "_keep_alive", "_long", "_memo",
        "_need", "_parser", "_paused", "_pool", "_raw", "_reused", "idle_since", "passing", "receiver",
    )  # fmt: skip

    def __init__(self, pool: ReplicaConnections) -> None:
        super().__init__()
        self._pool = pool
        self._memo = pool.memo
        self._parser: httptools.HttpResponseParser | None = None
        self._raw = b""
        self._head: ResponseHead | None = None
        self._need = 0  # bytes to come of a body with a length; -1: chunked or until the end of the connection
        self._body: list[bytes] = []
        self._complete = False
        self._between = self._chunk_ended = False
        self._keep_alive = False
        self._got_bytes = False
        self._reused = False
        self._paused = False
        self._long = False  # the request's body may still be on its way when the answer comes
        #: where whole chunks of text go, while they need not be looked into
        self.passing: Passing | None = None
        self.idle_since = 0.0
        self.receiver: Receiver | None = None

    # -- what the exchange calls

    def start(self, receiver: Receiver, head: bytes, body: bytes) -> None:
        """Send one request."""
        self.receiver = receiver
        self._got_bytes = False
        self._head = None
        if len(body) <= 65536:
            self._posted = head + body
            self._pool.outbox.post(self)
        else:  # one copy less for long prompts
            self._long = True
            self.transport.writelines((head, body))

    def pause(self, paused: bool) -> None:
        """Stop reading the response while its client does not take it."""
        if paused == self._paused or self.transport.is_closing():
            return
        self._paused = paused
        if paused:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def drop(self) -> None:
        """The exchange has no more interest: cut the connection so that the engine stops generating."""
        self.receiver = None
        self._posted = b""
        self._pool.forget(self)
        self.transport.abort()

    # -- asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]  # a TCP transport reads and writes
        self._pool.connections.add(self)

    def data_received(self, data: bytes) -> None:
        receiver = self.receiver
        if self._between and receiver is not None:
            passing = self.passing
            if passing is not None and passing.take(data):
                return
            size = len(data)
            if size < MAX_CHUNK and data.startswith(BEGINS[size]) and data[-1] == _LF and data[-2] == _CR:
                receiver.on_data(data[len(BEGINS[size]) : -2])
                return
        if receiver is None:  # an idle connection has nothing to say (408 pages, stray bytes)
            self.transport.abort()
            return
        if self._head is None:
            if self._posted:
                self._spoke_unasked(receiver)
                return
            self._got_bytes = True
            memo = self._memo
            if data.startswith(memo.before) and not self._raw:
                body = memo.body(data)
                if body is not None:  # the usual answer: whole, in one read, its head known
                    self._keep_alive = memo.keep_alive
                    self._release()
                    receiver.on_whole(memo.head, body)
                    return
            data = self._read_head(receiver, data)
            if self.receiver is not receiver or (not data and self._need):
                return
        if self._parser is not None:
            self._chunked(receiver, data)
        elif self._need < 0:  # until the end of the connection
            receiver.on_data(data)
        else:
            self._counted(receiver, data)

    def _spoke_unasked(self, receiver: Receiver) -> None:
        """Bytes before the request has gone out answer nothing: engines say 408 as they close an idle connection."""
        if self._reused:
            self.receiver = None
            self.transport.abort()
            receiver.on_stale()
        else:
            self._fail("the replica spoke before it was asked")

    def _read_head(self, receiver: Receiver, data: bytes) -> bytes:
        """Reads a head once it is whole and hands it on; returns what came behind it."""
        raw = self._raw + data if self._raw else data
        self._raw = b""
        self._need = -1
        while True:
            if raw[:5] != b"HTTP/"[: len(raw)]:  # no need to wait for a head that can't come
                self._fail("the replica's answer is not HTTP")
                return b""
            end = raw.find(END)
            if end < 0 or end > MAX_HEAD:
                if len(raw) > MAX_HEAD + 3:  # a part of its end may be here
                    self._fail(f"the replica's response head is larger than {MAX_HEAD} bytes")
                else:
                    self._raw = raw
                return b""
            parser = httptools.HttpResponseParser(self)
            try:
                parser.feed_data(raw[: end + 4])
            except httptools.HttpParserError as error:
                self._fail(f"the replica's answer is not valid HTTP: {error}")
                return b""
            status = parser.get_status_code()
            if status >= 200:
                break
            raw = raw[end + 4 :]  # 1xx is interim: the real head follows
        try:
            head, length = read_response_head(raw[:end], status)
        except UpstreamError as error:
            self._fail(error.message)
            return b""
        if raw[:8] != b"HTTP/1.1":
            head = head._replace(close=True)
        rest = raw[end + 4 :]
        if length is None or head.chunked or status in NO_BODY:
            return self._unusual_head(receiver, head, parser, rest)
        self._memo.remember(raw[:end], head)
        self._head = head
        self._keep_alive = not head.close
        self._need = length
        receiver.on_head(head, length)
        return rest

    def _unusual_head(
        self, receiver: Receiver, head: ResponseHead, parser: httptools.HttpResponseParser, rest: bytes
    ) -> bytes:
        """Chunked, without a body, or until the end of the connection."""
        self._head = head
        self._complete = False
        self._keep_alive = not head.close
        if head.status in NO_BODY:
            # No engine answers so. One that sends a body all the same would have it read as the next answer.
            self._need = 0
            self._keep_alive = False
        elif head.chunked:
            self._parser = parser
            self._between = not rest
        else:
            self._keep_alive = False
        receiver.on_head(head, None)
        return rest

    def _counted(self, receiver: Receiver, data: bytes) -> None:
        if len(data) > self._need:  # more than it announced: what it says next can't be trusted
            data = data[: self._need]
            self._keep_alive = False
        self._need -= len(data)
        if data:
            receiver.on_data(data)
        if not self._need:
            self._finish()

    def _chunked(self, receiver: Receiver, data: bytes) -> None:
        assert self._parser is not None
        if data:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserError as error:
                if not self._complete:
                    self._fail(f"the replica's answer is not valid HTTP: {error}")
                    return
                self._keep_alive = False  # the response is whole; what is behind it is nobody's
            # llhttp has whole chunks behind it and nothing of the next one: the next may pass by it
            self._between = self._chunk_ended and data[-2:] == b"\r\n" and not self._complete
            body = self._body
            if body:
                piece = body[0] if len(body) == 1 else b"".join(body)
                body.clear()
                receiver.on_data(piece)
        if self._complete:
            self._finish()

    def eof_received(self) -> bool:
        return False  # close; connection_lost tells the exchange

    def connection_lost(self, exc: Exception | None) -> None:
        self._pool.connections.discard(self)
        self._pool.forget(self)
        receiver, self.receiver = self.receiver, None
        ends_body = self._head is not None and self._need < 0 and self._parser is None
        self._parser = None  # it points back to us: no work for the garbage collector
        self.give_back()
        if receiver is None:
            return
        if not self._got_bytes and self._reused:
            receiver.on_stale()
        elif ends_body and exc is None:
            receiver.on_complete()  # a body without length or chunks ends with the connection
        else:
            where = "in the middle of its answer" if self._got_bytes else "before it answered"
            receiver.on_fault(Fault.RESET, f"the replica closed the connection {where}")

    # -- httptools

    def on_message_begin(self) -> None:
        if self._complete:
            self._keep_alive = False

    def on_chunk_header(self) -> None:
        self._chunk_ended = False

    def on_chunk_complete(self) -> None:
        self._chunk_ended = True

    def on_body(self, body: bytes) -> None:
        if not self._complete:
            self._body.append(body)

    def on_message_complete(self) -> None:
        self._complete = True

    # -- inside

    def _finish(self) -> None:
        receiver = self.receiver  # by now it may be another one, or none any more
        if receiver is not None:
            self._release()
            receiver.on_complete()

    def _release(self) -> None:
        """The response is whole: the connection is free for another request, or closed."""
        self.receiver = self._parser = self.passing = None
        self._between = False
        if self._long:
            self._long = False
            if self.transport.get_write_buffer_size():
                # It has answered before it had read all (a 413): what it makes of the rest is not known.
                self._keep_alive = False
                self.transport.abort()
        if self._keep_alive:
            self._reused = True
            if self._paused:
                self.pause(False)
            self._pool.give_back(self)
        else:
            self.transport.close()

    def _fail(self, detail: str) -> None:
        receiver, self.receiver = self.receiver, None
        self.transport.abort()
        if receiver is not None:
            receiver.on_fault(Fault.PROTOCOL, detail)
