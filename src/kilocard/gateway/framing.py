"""Requests out of a client connection's bytes. No I/O: bytes in, whole requests or one refusal out.

llhttp judges every head (strictly) and takes chunked bodies apart; a body with Content-Length is counted here, so that
the usual request costs one search and one copy. What llhttp lets pass and another reader may read in another way is
refused as well: strict.py has the rules.
"""

from __future__ import annotations

from typing import Final

import httptools

from kilocard.core.errors import BodyTooLarge, ClientError, HeaderTooLarge, KilocardError, UrlTooLong
from kilocard.gateway import strict
from kilocard.gateway.arrival import Arrival
from kilocard.gateway.head_memo import END, NOTHING, around_length, remembered_body
from kilocard.gateway.heads import RequestHead, read_request_head

#: requests that are taken apart in one go; what is behind them waits as bytes, which take less memory
MAX_ARRIVALS: Final = 16
#: bytes of chunk sizes, extensions and trailers for each byte of a chunked body: a chunk of one byte has 5
_FRAMING_SHARE = 8
#: longest method and version with the blanks between
_AROUND_URL = 32


class RequestFramer:
    """`feed` fills `arrivals`; once `refusal` is set the connection is of no more use."""

    __slots__ = (
        "_before", "_behind", "_body", "_chunked", "_coded", "_complete", "_head", "_keep_alive", "_max_body",
        "_max_head", "_max_url", "_memo", "_method", "_need", "_overrun", "_parser", "_path", "_query",
        "_raw", "_url", "_version", "arrivals", "body_bytes", "expects_continue", "in_message", "pent",
        "refusal",
    )  # fmt: skip

    def __init__(self, max_head: int, max_body: int, max_url: int) -> None:
        self.bound(max_head, max_body, max_url)
        self._raw = b""  # a head that is not whole yet, or requests behind MAX_ARRIVALS others
        self._head: RequestHead | None = None  # not None: its body is being read
        self._need = 0
        self._body = bytearray()  # one buffer: pieces in a list would cost 30 bytes each, and a piece may be one byte
        self._chunked = False
        self._coded = 0  # bytes of the chunked body on the wire
        self._complete = False
        self._overrun = False
        self._url = self._path = self._query = b""
        self._method = b""
        #: the last head that was found good, and what it said: clients send the same one again and again
        self._before, self._behind = NOTHING
        self._memo: RequestHead | None = None
        self._keep_alive = True
        self._version = "1.1"
        self._parser: httptools.HttpRequestParser | None = None
        self.arrivals: list[Arrival] = []
        #: part of a request is here, and more has to come
        self.in_message = False
        #: there may be whole requests here still: `feed(b"")` gives the next ones
        self.pent = False
        #: bytes of an unfinished body that are held here
        self.body_bytes = 0
        #: the client waits for "100 Continue" before it sends its body
        self.expects_continue = False
        self.refusal: KilocardError | None = None

    def bound(self, max_head: int, max_body: int, max_url: int) -> None:
        """Bytes that a head, a body, a path with its query may have, from the next piece on."""
        self._max_head = max_head
        self._max_body = max_body
        self._max_url = max_url

    @property
    def in_head(self) -> bool:
        return self._head is None and bool(self._raw)

    @property
    def held(self) -> int:
        """Bytes in memory here: an unfinished head or body, and what waits to be taken apart."""
        return len(self._raw) + self.body_bytes

    def feed(self, data: bytes) -> None:
        """Take what was read; afterwards look at `arrivals`, `refusal`, `in_message` and `pent`."""
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
        self.pent = False
        try:
            while data and self.refusal is None:
                if self._head is not None:
                    data = self._read_body(data)
                elif len(self.arrivals) < MAX_ARRIVALS:
                    data = self._read_head(data)
                else:
                    self._raw, self.pent = data, True
                    break
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
        if end < 0 and len(data) > self._max_url + _AROUND_URL and data.find(b"\r\n") < 0:
            self._url_too_long()
        if end > self._max_head or (end < 0 and len(data) > self._max_head + 3):  # 3: a part of its end
            raise HeaderTooLarge(f"The request's head is larger than {self._max_head} bytes (gateway.limits.header).")
        if end < 0:
            if data.find(b"\n\n") >= 0 or data.find(b"\n\r\n") >= 0:
                raise strict.refused("a line ends without CR")
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
        self._coded = 0
        self._head = head
        self.expects_continue = head.expects_continue and not rest
        return rest

    def _judge(self, data: bytes, end: int) -> RequestHead:
        """What llhttp says of a head, and what is in it. A good one is remembered."""
        (self._before, self._behind), self._memo = NOTHING, None
        self._url = b""
        self._complete = self._overrun = False
        parser = self._parser = httptools.HttpRequestParser(self)
        offer = False
        try:
            parser.feed_data(data[: end + 4])
        except httptools.HttpParserUpgrade:
            if self._method == b"CONNECT":
                raise strict.refused("CONNECT is not supported") from None
            offer = True  # to speak another protocol; it may be declined by ignoring it
        except httptools.HttpParserError as error:
            raise strict.refused(str(error)) from None
        if len(self._url) > self._max_url:
            self._url_too_long()
        if self._version not in ("1.1", "1.0"):
            raise strict.refused(f"HTTP/{self._version} is not spoken here")
        raw = data[:end]
        head = read_request_head(raw, self._version)
        if offer:
            self._decline(head.chunked)
        path, mark, query = self._url.partition(b"?")
        strict.check_query(query)
        self._path = path if path[:1] == b"/" else strict.path_of(path)
        self._query = mark + query
        around = around_length(raw)
        if around is not None and not head.chunked:
            self._before, self._behind = around[0], around[1] + END
            self._memo = head
        return head

    def _decline(self, chunked: bool) -> None:
        """llhttp reads nothing behind an offer of another protocol: chunks are for one that has not heard of it."""
        self._complete = False
        if chunked:
            said = self._url, self._method, self._keep_alive, self._version
            self._parser = httptools.HttpRequestParser(self)
            self._parser.feed_data(b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
            self._url, self._method, self._keep_alive, self._version = said

    def _read_body(self, data: bytes) -> bytes:
        head = self._head
        assert head is not None
        if self._chunked:
            assert self._parser is not None
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserError as error:
                if not self._complete:
                    raise strict.refused(str(error)) from None
                self._overrun = True
            if self.body_bytes > self._max_body:
                self._too_large()
            self._coded += len(data)
            if self._coded - self.body_bytes * _FRAMING_SHARE > self._max_head and not self._complete:
                raise HeaderTooLarge(
                    f"Chunk sizes, extensions and trailers are larger than {self._max_head} bytes "
                    "(gateway.limits.header)."
                )
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

    def _url_too_long(self) -> None:
        raise UrlTooLong(f"Path and query are longer than {self._max_url} bytes (gateway.limits.url).")

    # -- httptools

    def on_message_begin(self) -> None:
        if self._complete:
            self._overrun = True

    def on_url(self, url: bytes) -> None:
        if not self._complete:
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
