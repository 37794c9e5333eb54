"""Responses in a buffer, however they are cut."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kilocard.scrape.framing import CHUNKED, UNTIL_CLOSE, Chunks, FramingError, Head, parse_head


def head_of(text: bytes) -> Head | None:
    # what a reused buffer still holds from the last answer must not be read
    return parse_head(bytearray(text + b"\r\n\r\nHTTP/1.1 999 stale"), len(text))


def test_a_usual_head() -> None:
    text = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\nContent-Length: 50635\r\n\r\n"
    assert head_of(text) == Head(200, len(text), 50635, True)


@pytest.mark.parametrize(
    ("text", "status", "length", "keep_alive"),
    [
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n", 200, CHUNKED, True),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nConnection: close\r\n\r\n", 200, 5, False),
        (b"HTTP/1.0 200 OK\r\ncontent-length: 5\r\n\r\n", 200, 5, False),
        (b"HTTP/1.0 200 OK\r\ncontent-length: 5\r\nConnection: keep-alive\r\n\r\n", 200, 5, True),
        (b"HTTP/1.1 200\r\n\r\n", 200, UNTIL_CLOSE, False),
        (b"HTTP/1.1 204 No Content\r\n\r\n", 204, 0, True),
        (b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n", 503, 0, True),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n", 200, 5, True),
    ],
)
def test_heads(text: bytes, status: int, length: int, keep_alive: bool) -> None:
    assert head_of(text) == Head(status, len(text), length, keep_alive)
    for cut in range(len(text)):
        assert head_of(text[:cut]) is None


@pytest.mark.parametrize(
    "text",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/2.0 200 OK\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 2000\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: -5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5, 5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"x" * 70_000,
        b"HTTP/1.1 200 OK\r\nx: " + b"x" * 70_000 + b"\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" * 5000,
    ],
)
def test_what_is_no_response_is_refused(text: bytes) -> None:
    with pytest.raises(FramingError):
        head_of(text)


@settings(max_examples=100)
@given(pieces=st.lists(st.binary(min_size=1, max_size=40), max_size=8), data=st.data())
def test_chunks_give_the_body_however_they_are_cut(pieces: list[bytes], data: st.DataObject) -> None:
    text = b"".join(b"%X;ext=1\r\n%s\r\n" % (len(p), p) for p in pieces) + b"0\r\nTrailer: 1\r\n\r\n"
    cuts = data.draw(st.lists(st.integers(0, len(text) - 1), max_size=8))
    buffer = bytearray(b"head" + text + b"behind")
    chunks = Chunks(4)
    for cut in sorted(cuts):
        assert chunks.feed(buffer, 4 + cut) is None
    assert chunks.feed(buffer, len(buffer)) == b"".join(pieces)
    assert chunks.at == 4 + len(text)
    assert chunks.size == sum(map(len, pieces))


@pytest.mark.parametrize("text", [b"xyz\r\n", b"-1\r\n", b"\r\n", b"0x5\r\n", b"5 5\r\n", b"1" * 2000])
def test_bad_chunk_sizes_are_refused(text: bytes) -> None:
    with pytest.raises(FramingError):
        Chunks(0).feed(bytearray(text), len(text))
