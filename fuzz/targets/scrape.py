"""The poller's own small reader of HTTP responses: FramingError or a body, however the buffer fills."""

from __future__ import annotations

from fuzz.cuts import cut, uncut
from kilocard.scrape.framing import CHUNKED, Chunks, FramingError, parse_head

SEEDS = [
    uncut(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"),
    uncut(
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"5;a\r\nhello\r\n0\r\nx: y\r\n\r\n"
    ),
    uncut(b"HTTP/1.0 404 Not Found\r\nconnection: keep-alive\r\n\r\n"),
    uncut(b"HTTP/1.1 204\r\n\r\n"),
]


def check(data: bytes) -> None:
    pieces, whole = cut(data)
    assert _read(pieces) == _read([whole]), "another answer to other cuts"


def _read(pieces: list[bytes]) -> tuple[object, ...]:
    buffer = bytearray()
    head = chunks = body = None
    try:
        for piece in pieces:
            buffer += piece
            if head is None:
                head = parse_head(buffer, len(buffer))
                if head is not None and head.length == CHUNKED:
                    chunks = Chunks(head.body_at)
            if chunks is not None and body is None:
                body = chunks.feed(buffer, len(buffer))
    except FramingError:
        return ("refused",)
    return head, body
