"""Requests out of a client connection's bytes. No I/O: bytes in, whole requests or one refusal out.

llhttp judges every head (strictly) and takes chunked bodies apart; a body with Content-Length is counted here, so that
the usual request costs one search and one copy.
"""

from __future__ import annotations

import httptools
import msgspec

from kilocard.core.errors import BodyTooLarge, ClientError, HeaderTooLarge, KilocardError
from kilocard.gateway.heads import END, NEVER, RequestHead, around_length, read_request_head, remembered_body


class Arrival(msgspec.Struct, frozen=True, gc=False):
    """One whole request off the wire."""

    method: bytes
    path: bytes
    query: bytes  # with its "?", or empty
    head: RequestHead
    body: bytes
    keep_alive: bool
    version: str


class RequestFramer:
    """`feed` fills `arrivals`; once `refusal` is set the connection is of no more use."""

    __slots__ = (
        "_before",
        "_behind",
        "_body",
        "_chunked",
        "_complete",
        "_head",
        "_keep_alive",
        "_max_body",
        "_max_head",
        "_memo",
        "_method",
        "_need",
        "_overrun",
        "_parser",
        "_path",
        "_query",
        "_raw",
        "_url",
        "_version",
        "arrivals",
        "body_bytes",
        "expects_continue",
        "in_message",
        "refusal",
    )

    def __init__(self, max_head: int, max_body: int) -> None:
        self._max_head = max_head
        self._max_body = max_body
        self._raw = b""  # a head that is not whole yet
        self._head: RequestHead | None = None  # not None: its body is being read
        self._need = 0
        self._body = bytearray()  # one buffer: pieces in a list would cost 30 bytes each, and a piece may be one byte
        self._chunked = False
        self._complete = False
        self._overrun = False
        self._url = self._path = self._query = b""
        self._method = b""
        #: the last head that was found good, and what it said: clients send the same one again and again
        self._before, self._behind = NEVER, b""
        self._memo: RequestHead | None = None
        self._keep_alive = True
        self._version = "1.1"
        self._parser: httptools.HttpRequestParser | None = None
        self.arrivals: list[Arrival] = []
        #: part of a request is here, and more has to come
        self.in_message = False
        #: bytes of an unfinished body that are held here
        self.body_bytes = 0
        #: the client waits for "100 Continue" before it sends its body
        self.expects_continue = False
        self.refusal: KilocardError | None = None

    def bound(self, max_head: int, max_body: int) -> None:
        """Other limits, from the next piece on."""
        self._max_head = max_head
        self._max_body = max_body

    @property
    def in_head(self) -> bool:
        return self._head is None and bool(self._raw)

    def feed(self, data: bytes) -> None:
        """Take what was read; afterwards look at `arrivals`, `refusal` and `in_message`."""
        if data.startswith(self._before) and not self.in_message:
            # The usual case: one whole request whose head is the last one's but for its Content-Length.
            body = remembered_body(data, self._before, self._behind)
            memo = self._memo
            if body is not None and len(body) <= self._max_body and memo is not None and self.refusal is None:
                self.arrivals.append(
                    Arrival(self._method, self._path, self._query, memo, body, self._keep_alive, self._version)
                )
                return
        if self._raw:
            data = self._raw + data
            self._raw = b""
        try:
            while data and self.refusal is None:
                data = self._read_head(data) if self._head is None else self._read_body(data)
        except KilocardError as error:
            # A traceback and a context hold frames, frames hold us and all that was read.
            error.__traceback__ = error.__context__ = None
            self.refusal = error
            self.close()
        self.in_message = self._head is not None or bool(self._raw)

    def close(self) -> None:
        """No more will come. The parser points back to us: let go of it, so that no garbage collector is needed."""
        self._parser = None

    def _read_head(self, data: bytes) -> bytes:
        if data[0] in b"\r\n":  # RFC 9112 §2.2: empty lines before a request line are to be ignored
            return data.lstrip(b"\r\n")
        end = data.find(END)
        if end > self._max_head or (end < 0 and len(data) > self._max_head):
            raise HeaderTooLarge(f"The request's head is larger than {self._max_head} bytes (gateway.limits.header).")
        if end < 0:
            if not data[:1].isalpha():
                raise ClientError(
                    "Not an HTTP request (is this a TLS client? the gateway speaks plain HTTP here).",
                    code="invalid_http",
                )
            self._raw = data
            return b""
        head = self._judge(data, end)
        length = head.content_length or 0
        rest = data[end + 4 :]
        if length > self._max_body:
            self._too_large()
        if not head.chunked:
            if len(rest) >= length:
                self._arrive(head, rest[:length])
                return rest[length:]
            self._need = length
            self._parser = None
        self._chunked = head.chunked
        self._head = head
        self.expects_continue = head.expects_continue and not rest
        return rest

    def _judge(self, data: bytes, end: int) -> RequestHead:
        """What llhttp says of a head, and what is in it. A good one is remembered."""
        self._before, self._memo = NEVER, None
        self._url = b""
        self._complete = self._overrun = False
        parser = self._parser = httptools.HttpRequestParser(self)
        try:
            parser.feed_data(data[: end + 4])
        except httptools.HttpParserUpgrade:
            if self._method == b"CONNECT":
                raise ClientError("CONNECT is not supported.", code="invalid_http") from None
            self._complete = False  # an offer to speak another protocol may be declined by ignoring it
        except httptools.HttpParserError as error:
            raise ClientError(f"Not a valid HTTP/1.1 request: {error}", code="invalid_http") from None
        raw = data[:end]
        head = read_request_head(raw)
        path, mark, query = self._url.partition(b"?")
        self._path = path if path[:1] == b"/" else _path_of(self._url)
        self._query = mark + query
        around = around_length(raw)
        if around is not None and not head.chunked:
            self._before, self._behind = around
            self._memo = head
        return head

    def _read_body(self, data: bytes) -> bytes:
        head = self._head
        assert head is not None
        if self._chunked:
            assert self._parser is not None
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserError as error:  # HttpParserUpgrade is one
                raise ClientError(f"Not a valid HTTP/1.1 request: {error}", code="invalid_http") from None
            if self.body_bytes > self._max_body:
                self._too_large()
            if self._complete:
                if self._overrun:  # pipelining behind a chunked body: the edge is not known, so this was the last
                    self._keep_alive = False
                self._arrive(head, bytes(self._body))
            return b""
        piece = data if len(data) <= self._need else data[: self._need]
        self._need -= len(piece)
        self._body += piece
        self.body_bytes += len(piece)
        if not self._need:
            self._arrive(head, bytes(self._body))
        return data[len(piece) :]

    def _arrive(self, head: RequestHead, body: bytes) -> None:
        self._head = self._parser = None
        self.expects_continue = False
        if self._body:
            self._body = bytearray()
            self.body_bytes = 0
        self.arrivals.append(
            Arrival(self._method, self._path, self._query, head, body, self._keep_alive, self._version)
        )

    def _too_large(self) -> None:
        raise BodyTooLarge(
            f"The request body is larger than this gateway's limit of {self._max_body} bytes (gateway.limits.body)."
        )

    # -- httptools

    def on_url(self, url: bytes) -> None:
        if self._complete:
            self._overrun = True
        else:
            self._url += url

    def on_headers_complete(self) -> None:
        parser = self._parser
        if parser is not None and not self._complete:
            self._method = parser.get_method()
            self._keep_alive = parser.should_keep_alive()
            self._version = parser.get_http_version()

    def on_body(self, body: bytes) -> None:
        if not self._complete:
            self._body += body
            self.body_bytes += len(body)

    def on_message_complete(self) -> None:
        self._complete = True


def _path_of(url: bytes) -> bytes:
    """The path of an absolute-form target (RFC 9112 §3.2.2); whatever else it is, no route has its name."""
    try:
        return httptools.parse_url(url).path or b"/"
    except httptools.HttpParserInvalidURLError:
        return url
