"""Message heads, line by line: which headers go on, in both directions, and how heads are written.

llhttp has checked a head before it comes here, so a line is `name: value` and nothing is folded; what goes on, goes on
as the very bytes that came.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import NamedTuple

from kilocard.core.errors import ClientError, HeaderTooLarge, UpstreamError
from kilocard.gateway import strict

#: what to do with a field; plain integers, since an enum's member costs a lookup of 50 ns (CPython 3.11) for each line
_KEEP, _DROP, _LENGTH, _REQUEST_ID, _EXPECT, _TYPE, _CONNECTION, _ENCODING, _CHUNKED = range(9)
_BEARER, _API_KEY, _TIMEOUT, _TRACE, _RECEIPT, _HOST, _PLACE = range(9, 16)

#: RFC 9110 §7.6.1: fields of one connection, whichever way they go
_HOP = {
    "connection": _CONNECTION,
    "content-length": _LENGTH,
    "keep-alive": _DROP,
    "proxy-authenticate": _DROP,
    "proxy-authorization": _DROP,
    "proxy-connection": _DROP,
    "te": _DROP,
    "trailer": _DROP,
    "transfer-encoding": _CHUNKED,
    "upgrade": _DROP,
}
#: accept-encoding: a compressed stream could be neither flushed by event nor read. forwarded, x-forwarded-*: nothing
#: behind the gateway should trust them, and engines don't read them. The rest spares the common ones a lower().
_REQUEST = _HOP | {
    "accept": _KEEP,
    "accept-encoding": _DROP,
    "authorization": _BEARER,
    "content-encoding": _ENCODING,
    "content-type": _TYPE,
    "expect": _EXPECT,
    "forwarded": _DROP,
    "host": _HOST,
    "traceparent": _TRACE,
    "user-agent": _KEEP,
    "x-api-key": _API_KEY,
    "x-forwarded-for": _DROP,
    "x-forwarded-host": _DROP,
    "x-forwarded-proto": _DROP,
    "x-kilocard-receipt": _RECEIPT,
    "x-kilocard-timeout": _TIMEOUT,
    "x-real-ip": _DROP,
    "x-request-id": _REQUEST_ID,
}
_RESPONSE = _HOP | {
    "content-encoding": _ENCODING,
    "content-location": _PLACE,
    "content-type": _TYPE,
    "date": _KEEP,
    "location": _PLACE,
    "server": _DROP,
    "x-accel-buffering": _DROP,
    "x-request-id": _DROP,
}


def _spellings(table: dict[str, int]) -> dict[bytes, int]:
    """The usual two ways to write each name; any other is found by lower()."""
    both = table | {name.title(): do for name, do in table.items()}
    return {name.encode(): do for name, do in both.items()}


_REQUEST_DO = _spellings(_REQUEST)
_RESPONSE_DO = _spellings(_RESPONSE)

STATUS_LINE = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}
#: an event stream must not be gathered by any proxy on its way
STREAM_HEADERS = b"cache-control: no-cache\r\nx-accel-buffering: no\r\n"


#: RFC 6750 §3: what a 401 says of how to get in; an error is named only where a key came
ASK_FOR_KEY = b'www-authenticate: Bearer realm="kilocard"\r\n'
REFUSED_KEY = b'www-authenticate: Bearer realm="kilocard", error="invalid_token"\r\n'


#: answers that end with their head: no length, no chunks
NO_BODY = frozenset({204, 304})


def status_line(code: int) -> bytes:
    return STATUS_LINE.get(code) or b"HTTP/1.1 %d Status\r\n" % code


class RequestHead(NamedTuple):
    """What the gateway needs of a request's headers, and the block of lines that goes on to a replica."""

    forward: bytes
    request_id: bytes | None
    content_type: bytes
    content_length: int | None
    chunked: bool
    expects_continue: bool
    authorization: bytes | None = None
    api_key: bytes | None = None
    #: the lines of these two: they go on only where the gateway asks for no keys itself, so that they are the engines'
    credentials: bytes = b""
    #: x-kilocard-timeout: seconds that the client gives the whole request
    timeout: float | None = None
    #: the value, which is among `forward` too; empty where several came, since that is no value
    traceparent: bytes | None = None
    #: the client wants to know how its request was routed
    receipt: bool = False
    #: the body is compressed (content-encoding)
    encoded: bool = False


#: header lines of one request; others have 100 (Apache, h11), 128 (uvicorn's h11) or no bound (nginx)
MAX_LINES = 256


def read_request_head(raw: bytes, version: str = "1.1") -> RequestHead:
    """`raw`: a head that llhttp accepted, without its last two line ends. Raises ClientError for what llhttp lets pass
    and others refuse or read otherwise: no Host or two, a coding that is not just `chunked`, a lone line feed."""
    lines = raw.split(b"\r\n")
    if len(lines) > MAX_LINES + 1:
        raise HeaderTooLarge(f"The request has more than {MAX_LINES} header lines.")
    if raw.count(b"\n") != len(lines) - 1:  # llhttp refuses these too; the filter below depends on it
        raise strict.refused("a line ends without CR")
    keep = []
    request_id = length = named = authorization = api_key = timeout = trace = None
    kind = credentials = b""
    chunked = expects = receipt = encoded = False
    hosts = 0
    do_of = _REQUEST_DO.get
    for line in lines[1:]:
        name = line[: line.find(b":")]
        do = do_of(name)
        if do is None:
            do = _rare(name.lower())
        if do == _KEEP:
            keep.append(line)
        elif do == _DROP:
            continue
        elif do == _TYPE:
            kind = line[len(name) + 1 :].strip()
            keep.append(line)
        elif do == _LENGTH:
            length = int(line[len(name) + 1 :])
        elif do == _CONNECTION:
            named = _named(line[len(name) + 1 :], named)
        elif do == _HOST:
            hosts += 1
            strict.check_host(line[len(name) + 1 :])
        elif do == _CHUNKED:
            strict.only_chunked(line[len(name) + 1 :], chunked, version)
            chunked = True
        elif do == _ENCODING:
            encoded = encoded or line[len(name) + 1 :].strip().lower() not in (b"", b"identity")
            keep.append(line)
        elif do == _REQUEST_ID:
            request_id = line[len(name) + 1 :].strip()
        elif do == _EXPECT:
            expects = line[len(name) + 1 :].strip().lower() == b"100-continue" and version == "1.1"  # RFC 9110 §10.1.1
        elif do == _BEARER:
            authorization = line[len(name) + 1 :].strip()
            credentials += line + b"\r\n"
        elif do == _API_KEY:
            api_key = line[len(name) + 1 :].strip()
            credentials += line + b"\r\n"
        elif do == _TIMEOUT:
            timeout = _seconds(line[len(name) + 1 :].strip())
        elif do == _TRACE:
            trace = line[len(name) + 1 :].strip() if trace is None else b""
            keep.append(line)
        elif do == _RECEIPT:
            receipt = line[len(name) + 1 :].strip() == b"1"
    if hosts != 1 and (hosts or version == "1.1"):
        raise strict.refused("there has to be one Host line")
    if named:
        keep = _without(keep, named)
        credentials = b"".join(line + b"\r\n" for line in _without(credentials.split(b"\r\n")[:-1], named))
    keep.append(b"")
    block = b"\r\n".join(keep)
    return RequestHead(
        block, request_id, kind, length, chunked, expects, authorization, api_key, credentials, timeout, trace, receipt,
        encoded,
    )  # fmt: skip


def _rare(name: bytes) -> int:
    """For a name in another spelling than the usual two. `content_length` and its like go no further: a CGI or WSGI
    server takes them for the real ones."""
    do = _REQUEST_DO.get(name)
    if do is not None:
        return do
    return _KEEP if b"_" not in name or _REQUEST_DO.get(name.replace(b"_", b"-"), _KEEP) == _KEEP else _DROP


_SECONDS = re.compile(rb"[0-9]{1,9}(?:\.[0-9]{1,9})?")


def _seconds(value: bytes) -> float:
    if not _SECONDS.fullmatch(value) or not float(value):
        raise ClientError(
            "x-kilocard-timeout is a number of seconds above 0, as in 'x-kilocard-timeout: 2.5'.",
            code="invalid_timeout",
        )
    return float(value)


class ResponseHead(NamedTuple):
    """A replica's response head without its length, so that one reading serves all heads that are otherwise alike."""

    status: int
    #: status line and header lines for the client, each with its line end
    block: bytes
    content_type: bytes
    #: server-sent events
    stream: bool
    chunked: bool
    #: the body is compressed: it can be passed on, not read
    encoded: bool
    #: the replica will close the connection
    close: bool

    def until_close(self, length: int | None) -> bool:
        """The end of the connection is that of the body, so a replica that dies looks like one that is done."""
        return length is None and not self.chunked and self.status not in NO_BODY

    def stream_block(self) -> bytes:
        """`block` for an event stream: marked so that no proxy gathers it."""
        lines = [line for line in self.block.split(b"\r\n") if line[:14].lower() != b"cache-control:"]
        return b"\r\n".join(lines) + STREAM_HEADERS


def read_response_head(raw: bytes, status: int) -> tuple[ResponseHead, int | None]:
    """`raw`: a head that llhttp accepted, without its last two line ends. With it the Content-Length, if any.

    Raises UpstreamError for a coding that can't be undone.
    """
    keep = []
    length = named = None
    kind = b""
    chunked = encoded = close = False
    do_of = _RESPONSE_DO.get
    for line in raw.split(b"\r\n")[1:]:
        name = line[: line.find(b":")]
        do = do_of(name)
        if do is None:
            do = do_of(name.lower(), _KEEP)
        if do == _KEEP:
            keep.append(line)
        elif do == _DROP:
            continue
        elif do == _TYPE:
            kind = line[len(name) + 1 :].strip().lower()
            keep.append(line)
        elif do == _LENGTH:
            length = int(line[len(name) + 1 :])
        elif do == _CONNECTION:
            named = _named(line[len(name) + 1 :], named)
            close = close or b"close" in line[len(name) :].lower()
        elif do == _CHUNKED:
            if chunked or line[len(name) + 1 :].strip(b" \t").lower() != b"chunked":
                raise UpstreamError("the replica's answer has a Transfer-Encoding that is not 'chunked'")
            chunked = True
        elif do == _ENCODING:
            encoded = line[len(name) + 1 :].strip().lower() != b"identity"
            keep.append(line)
        elif do == _PLACE:  # of this gateway, not of the replica
            keep.append(b"%b: %b" % (name, _ORIGIN.sub(b"", line[len(name) + 1 :].strip(), 1) or b"/"))
    if named:
        keep = _without(keep, named)
    keep.append(b"")
    block = status_line(status) + b"\r\n".join(keep)
    stream = status == 200 and kind.startswith(b"text/event-stream")
    return ResponseHead(status, block, kind, stream, chunked, encoded, close), length


#: scheme and host of a URL
_ORIGIN = re.compile(rb"\A(?i:[a-z][a-z0-9+.-]*:)?//[^/?#]*")
_USUAL = frozenset({b"close", b"keep-alive", b"upgrade"})


def _named(value: bytes, before: set[bytes] | None) -> set[bytes] | None:
    """Names that a Connection field makes hop-by-hop."""
    value = value.strip().lower()
    if value in _USUAL:
        return before
    return {part.strip() for part in value.split(b",")} | (before or set())


def _without(lines: list[bytes], named: set[bytes]) -> list[bytes]:
    return [line for line in lines if line[: line.find(b":")].lower() not in named]
