"""Message heads: which headers go on, in both directions, and how heads are written."""

from __future__ import annotations

from http import HTTPStatus
from typing import NamedTuple

Headers = list[tuple[bytes, bytes]]

#: RFC 9110 §7.6.1 and what belongs to one connection or is set anew by us
_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"content-length",
    }
)
#: accept-encoding: a compressed stream could be neither flushed by event nor read. forwarded/x-forwarded-*: dropped
#: since nothing behind the gateway should trust them, and engines don't read them.
_NOT_UPSTREAM = _HOP | {
    b"host",
    b"expect",
    b"accept-encoding",
    b"x-request-id",
    b"forwarded",
    b"x-forwarded-for",
    b"x-forwarded-host",
    b"x-forwarded-proto",
    b"x-real-ip",
}
_NOT_DOWNSTREAM = _HOP | {b"server", b"x-request-id", b"x-accel-buffering"}

STATUS_LINE = {
    code: f"HTTP/1.1 {code} {HTTPStatus(code).phrase}\r\n".encode() for code in [status.value for status in HTTPStatus]
}


def status_line(code: int) -> bytes:
    return STATUS_LINE.get(code) or b"HTTP/1.1 %d Status\r\n" % code


class RequestHead(NamedTuple):
    """What the gateway itself needs of a request's headers, and the block of lines that goes on to a replica."""

    forward: bytes
    request_id: bytes | None
    content_type: bytes
    content_length: int | None
    expects_continue: bool


def read_request_headers(headers: Headers) -> RequestHead:
    """One pass over a client's headers. Names listed in Connection stay here, as RFC 9110 §7.6.1 asks."""
    named = _connection_names(headers)
    parts = []
    request_id = length = None
    kind = b""
    expects = False
    for name, value in headers:
        lower = name.lower()
        if lower in _NOT_UPSTREAM:
            if lower == b"content-length":
                length = int(value)
            elif lower == b"x-request-id":
                request_id = value
            elif lower == b"expect":
                expects = value.lower() == b"100-continue"
            continue
        if named is not None and lower in named:
            continue
        if lower == b"content-type":
            kind = value
        parts.append(b"%b: %b\r\n" % (name, value))
    return RequestHead(b"".join(parts), request_id, kind, length, expects)


def downstream_headers(headers: Headers, event_stream: bool) -> bytes:
    """A replica's headers that go on to the client; an event stream is marked so that no proxy gathers it."""
    named = _connection_names(headers)
    parts = []
    for name, value in headers:
        lower = name.lower()
        if lower in _NOT_DOWNSTREAM or (named and lower in named) or (event_stream and lower == b"cache-control"):
            continue
        parts.append(b"%b: %b\r\n" % (name, value))
    if event_stream:
        parts.append(STREAM_HEADERS)
    return b"".join(parts)


STREAM_HEADERS = b"cache-control: no-cache\r\nx-accel-buffering: no\r\n"


def _connection_names(headers: Headers) -> set[bytes] | None:
    """Names that a Connection header makes hop-by-hop (`close` and `keep-alive` are no names)."""
    for name, value in headers:
        if len(name) == 10 and name.lower() == b"connection" and value.lower() not in _USUAL:
            return {part.strip().lower() for part in value.split(b",")}
    return None


_USUAL = frozenset({b"close", b"keep-alive"})
