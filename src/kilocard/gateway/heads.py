"""Message heads, line by line: which headers go on, in both directions, and how heads are written.

llhttp has checked a head before it comes here, so a line is `name: value` and nothing is folded; what goes on, goes on
as the very bytes that came.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import NamedTuple

from kilocard.core.errors import ClientError

#: what to do with a field; plain integers, since an enum's member costs a lookup of 50 ns (CPython 3.11) for each line
_KEEP, _DROP, _LENGTH, _REQUEST_ID, _EXPECT, _TYPE, _CONNECTION, _ENCODING, _CHUNKED = range(9)

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
    "authorization": _KEEP,
    "content-type": _TYPE,
    "expect": _EXPECT,
    "forwarded": _DROP,
    "host": _DROP,
    "user-agent": _KEEP,
    "x-forwarded-for": _DROP,
    "x-forwarded-host": _DROP,
    "x-forwarded-proto": _DROP,
    "x-real-ip": _DROP,
    "x-request-id": _REQUEST_ID,
}
_RESPONSE = _HOP | {
    "content-encoding": _ENCODING,
    "content-type": _TYPE,
    "date": _KEEP,
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


def read_request_head(raw: bytes) -> RequestHead:
    """`raw`: a head that llhttp accepted, without its last two line ends. Raises ClientError for a lone line feed."""
    lines = raw.split(b"\r\n")
    if raw.count(b"\n") != len(lines) - 1:  # llhttp refuses these too; the filter below depends on it
        raise ClientError("Not a valid HTTP/1.1 request: a line ends without CR.", code="invalid_http")
    keep = []
    request_id = length = named = None
    kind = b""
    chunked = expects = False
    do_of = _REQUEST_DO.get
    for line in lines[1:]:
        name = line[: line.find(b":")]
        do = do_of(name)
        if do is None:
            do = do_of(name.lower(), _KEEP)
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
        elif do == _CHUNKED:
            chunked = True
        elif do == _REQUEST_ID:
            request_id = line[len(name) + 1 :].strip()
        elif do == _EXPECT:
            expects = line[len(name) + 1 :].strip().lower() == b"100-continue"
    if named:
        keep = _without(keep, named)
    keep.append(b"")
    return RequestHead(b"\r\n".join(keep), request_id, kind, length, chunked, expects)


class ResponseHead(NamedTuple):
    """A replica's response head without its length, so that one reading serves all heads that are otherwise alike."""

    status: int
    #: header lines for the client, each with its line end
    block: bytes
    content_type: bytes
    chunked: bool
    #: the body is compressed: it can be passed on, not read
    encoded: bool
    #: the replica will close the connection
    close: bool

    @property
    def event_stream(self) -> bool:
        return self.content_type.startswith(b"text/event-stream")

    def stream_block(self) -> bytes:
        """`block` for an event stream: marked so that no proxy gathers it."""
        lines = [line for line in self.block.split(b"\r\n") if line[:14].lower() != b"cache-control:"]
        return b"\r\n".join(lines) + STREAM_HEADERS


def read_response_head(raw: bytes, status: int) -> tuple[ResponseHead, int | None]:
    """`raw`: a head that llhttp accepted, without its last two line ends. With it the Content-Length, if any."""
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
            chunked = True
        elif do == _ENCODING:
            encoded = line[len(name) + 1 :].strip().lower() != b"identity"
            keep.append(line)
    if named:
        keep = _without(keep, named)
    keep.append(b"")
    return ResponseHead(status, b"\r\n".join(keep), kind, chunked, encoded, close), length


_USUAL = frozenset({b"close", b"keep-alive", b"upgrade"})


def without_length(raw: bytes) -> tuple[bytes, int]:
    """A head without its Content-Length line, and that length; (b"", 0) where it has none in the usual spelling.

    Heads of one peer are alike but for their length, so this is the key under which a reading is remembered. What is
    left of a head with two such lines has one still, so it is never taken for a head that was found good.
    """
    start = raw.find(b"\r\ncontent-length: ")
    if start < 0:
        start = raw.find(b"\r\nContent-Length: ")
        if start < 0:
            return b"", 0
    end = raw.find(b"\r\n", start + 18)
    digits = raw[start + 18 :] if end < 0 else raw[start + 18 : end]
    if not digits.isdigit() or len(digits) > 15:
        return b"", 0
    return raw[:start] if end < 0 else raw[:start] + raw[end:], int(digits)


def _named(value: bytes, before: set[bytes] | None) -> set[bytes] | None:
    """Names that a Connection field makes hop-by-hop."""
    value = value.strip().lower()
    if value in _USUAL:
        return before
    return {part.strip() for part in value.split(b",")} | (before or set())


def _without(lines: list[bytes], named: set[bytes]) -> list[bytes]:
    return [line for line in lines if line[: line.find(b":")].lower() not in named]
