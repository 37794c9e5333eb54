"""HTTP/1.1 framing for servers that are not the hot path: bytes in, whole requests out, and back.

Parsing is llhttp's (through httptools) in its strict mode: bare LF, folded headers, Content-Length together with
Transfer-Encoding, duplicate lengths and the like are refused, since two parsers that disagree about them are how
requests get smuggled. Sizes are bounded however the bytes are cut.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import httptools

from kilocard.core.errors import BodyTooLarge, ClientError, HeaderTooLarge

#: Request line and headers together, bytes. nginx's default is 4 × 8 KiB, uvicorn's 64 KiB.
MAX_HEAD_BYTES = 64 * 1024
#: A prompt of a million tokens is some 4 MB; images come as base64.
MAX_BODY_BYTES = 32 * 1024 * 1024
#: As Go's and nginx's users see it: nobody honest sends more.
MAX_HEADERS = 128

LAST_CHUNK = b"0\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

REASONS = {
    200: "OK",
    201: "Created",
    202: "Accepted",
    204: "No Content",
    301: "Moved Permanently",
    302: "Found",
    304: "Not Modified",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    409: "Conflict",
    413: "Content Too Large",
    422: "Unprocessable Content",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    501: "Not Implemented",
    502: "Bad Gateway",
    503: "Service Unavailable",
    504: "Gateway Timeout",
}


@dataclass(slots=True)
class Request:
    """One complete request.

    `target` is what stood on the request line; `path` and `query` are its parts, not percent-decoded. `headers`
    has lower-case names; values of a repeated header are joined by ", ". `keep_alive` is what the client asked for.
    """

    method: str
    target: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes
    keep_alive: bool
    #: "1.1" or "1.0"
    version: str


class RequestReader:
    """Feed it what the socket gives; it hands out the requests that are complete.

    A violation ends the connection: the reader raises a ClientError and never reads on. When whole requests stand
    before the violation in the same bytes, they are returned first, and `error` holds what the next call raises.
    """

    def __init__(self, *, max_head_bytes: int = MAX_HEAD_BYTES, max_body_bytes: int = MAX_BODY_BYTES) -> None:
        self.max_head_bytes = max_head_bytes
        self.max_body_bytes = max_body_bytes
        self.error: ClientError | None = None
        #: the client asked for the last word: whatever follows is ignored
        self.ended = False
        #: a request has begun and is not complete
        self.mid_request = False
        #: the client waits for "100 Continue" before it sends the body; the server clears it
        self.wants_continue = False
        self._done: list[Request] = []
        self._parser = httptools.HttpRequestParser(self)
        #: bytes since the last byte of a body or the last end of a message: bounds what the parser holds back
        self._unseen = 0
        self._message = _Partial()
        #: a request that offers an upgrade and whose body is still to be read
        self._offer: _Partial | None = None

    def close(self) -> None:
        """No more will come. The parser points back to us: letting go of it spares the garbage collector a cycle."""
        del self._parser

    def feed(self, data: bytes) -> list[Request]:
        """Requests completed by `data`, in order. Raises ClientError (400, 413, 431)."""
        self._raise_error()
        while data and not self.ended:
            data = self._feed_once(data)
        done, self._done = self._done, []
        if not done:
            self._raise_error()
        return done

    def _raise_error(self) -> None:
        if self.error is not None:
            raise self.error

    def _feed_once(self, data: bytes) -> bytes:
        """Parse; returns what is left for a fresh parser (after an upgrade that we don't do)."""
        self._unseen += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            # We speak nothing else (h2c, websocket), and a server may ignore the offer: the next bytes are HTTP/1.1.
            self._parser = httptools.HttpRequestParser(self)
            if self._offer is not None:
                self._read_body_of_offer(self._offer)
            return data[int(upgrade.args[0]) :]
        except httptools.HttpParserCallbackError:
            if self.error is None:
                raise  # a fault of ours, not of the client
        except httptools.HttpParserError as bad:
            if not self.ended:
                self.error = ClientError(f"not HTTP/1.1: {bad}", code="bad_framing")
        if self._unseen > self.max_head_bytes and self.error is None:
            self.error = HeaderTooLarge(f"the head of the request is over {self.max_head_bytes} bytes")
        if self.error is not None:
            self.ended = True
        return b""

    def _read_body_of_offer(self, message: _Partial) -> None:
        """httptools skips the body of a request that offers an upgrade (Java's HttpClient does so with each POST).
        Read as the next request it would be smuggled in. A second parser gets a head of the same framing."""
        self._offer = None
        framing = [
            f"{name}: {message.headers[name]}\r\n"
            for name in ("content-length", "transfer-encoding")
            if name in message.headers
        ]
        self._parser.feed_data(f"{message.method} / HTTP/1.1\r\n{''.join(framing)}\r\n".encode("latin-1"))
        self._message = message

    # llhttp's callbacks

    def on_message_begin(self) -> None:
        self._message = _Partial()
        self.mid_request = not self.ended

    def on_url(self, url: bytes) -> None:
        self._message.target += url
        self._count_head(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        message = self._message
        self._count_head(len(name) + len(value) + 4)
        message.header_count += 1
        if message.header_count > MAX_HEADERS:
            self._refuse(HeaderTooLarge(f"more than {MAX_HEADERS} headers"))
        if message.head_done:
            return  # a trailer: counted, not used
        key = name.decode("latin-1").lower()
        text = value.decode("latin-1").strip(" \t")
        if key in message.headers:
            if key == "host":
                self._refuse(ClientError("two Host headers", code="bad_framing"))
            text = f"{message.headers[key]}, {text}"
        message.headers[key] = text

    def on_headers_complete(self) -> None:
        message = self._message
        message.head_done = True
        version = message.version or self._parser.get_http_version()
        if version not in ("1.1", "1.0"):
            self._refuse(ClientError(f"HTTP/{version} is not spoken here", code="bad_framing"))
        coding = message.headers.get("transfer-encoding")
        if coding is not None and (coding.lower() != "chunked" or version != "1.1"):
            self._refuse(ClientError("a Transfer-Encoding that is not 'chunked'", code="bad_framing"))
        length = message.headers.get("content-length")
        if length is not None and int(length) > self.max_body_bytes:
            self._refuse(self._body_too_large())
        if message.headers.get("expect", "").lower() == "100-continue":
            self.wants_continue = True

    def on_body(self, data: bytes) -> None:
        message = self._message
        self._unseen = 0
        self.wants_continue = False
        message.body_bytes += len(data)
        if message.body_bytes > self.max_body_bytes:
            self._refuse(self._body_too_large())
        message.body.append(data)

    def on_message_complete(self) -> None:
        if self.ended:  # what follows the last request is no request, also where llhttp has not heard that it was
            return
        message = self._message
        parser = self._parser
        method = message.method or parser.get_method().decode("latin-1")
        version = message.version or parser.get_http_version()
        if parser.should_upgrade() and method != "CONNECT" and _has_body(message.headers):
            message.method, message.version = method, version
            self._offer = message
            return
        target = message.target.decode("latin-1")
        path, query = split_target(target)
        # The client of a CONNECT expects a tunnel after it; it gets one answer and the end.
        keep_alive = method != "CONNECT" and _keeps_alive(version, message.headers.get("connection", ""))
        body = message.body[0] if len(message.body) == 1 else b"".join(message.body)
        self._done.append(Request(method, target, path, query, message.headers, body, keep_alive, version))
        self.mid_request = self.wants_continue = False
        self._unseen = 0
        self._message = _Partial()
        self.ended = not keep_alive

    def _count_head(self, size: int) -> None:
        message = self._message
        message.head_bytes += size
        if message.head_bytes > self.max_head_bytes:
            self._refuse(HeaderTooLarge(f"the head of the request is over {self.max_head_bytes} bytes"))

    def _body_too_large(self) -> BodyTooLarge:
        return BodyTooLarge(f"the body is over {self.max_body_bytes} bytes")

    def _refuse(self, error: ClientError) -> None:
        """Stops llhttp by raising through it; `feed` raises the same error again, unwrapped."""
        if self.ended:  # nobody asks what is behind the last request
            return
        self.error = error
        raise error


@dataclass(slots=True)
class _Partial:
    target: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    body: list[bytes] = field(default_factory=list)
    head_bytes: int = 0
    header_count: int = 0
    body_bytes: int = 0
    head_done: bool = False
    method: str = ""
    version: str = ""


def _has_body(headers: dict[str, str]) -> bool:
    return "transfer-encoding" in headers or headers.get("content-length", "0").strip("0") != ""


def _keeps_alive(version: str, connection: str) -> bool:
    wishes = {wish.strip().lower() for wish in connection.split(",")}
    return "close" not in wishes if version == "1.1" else "keep-alive" in wishes


def split_target(target: str) -> tuple[str, str]:
    """(path, query) of a request target; the absolute form (`http://host/path`) loses its host."""
    if not target.startswith("/") and "://" in target:
        _, _, rest = target.partition("://")
        slash = rest.find("/")
        target = rest[slash:] if slash >= 0 else "/"
    path, _, query = target.partition("#")[0].partition("?")
    return path, query


def response_head(status: int, headers: Iterable[tuple[str, str]], *, version: str = "1.1") -> bytes:
    """Status line and headers, with the empty line. ValueError if a header holds a line break or a NUL."""
    lines = [f"HTTP/{version} {status} {REASONS.get(status, 'Status')}"]
    for name, value in headers:
        if any(sign in name or sign in value for sign in "\r\n\0"):
            raise ValueError(f"response header {name!r} holds a line break")
        lines.append(f"{name}: {value}")
    lines.append("\r\n")
    return "\r\n".join(lines).encode("latin-1", "replace")


def chunk(data: bytes) -> bytes:
    """`data` as one chunk of a chunked body. Empty data would end the body, so it gives nothing."""
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""
