"""What passes a stream by unread: text and nothing else, byte for byte, with its gaps counted."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilocard.gateway.one_chunk import MAX_CHUNK
from kilocard.gateway.passing import Passing
from kilocard.metrics.meters import Histogram
from kilocard.wire.relay import EventRelay

BOUNDS = (0.001, 0.01, 0.1, 1.0)


class Line:
    """A transport to the client and the socket behind it. `room`: bytes that the socket takes now; -1: it is broken."""

    def __init__(self, room: int = 1 << 30) -> None:
        self.room = room
        self.out = b""  # what the socket took, in its order
        self.sends = 0
        self.waiting = b""

    def send(self, data: bytes) -> int:
        self.sends += 1
        if self.room <= 0:
            raise (BlockingIOError if self.room == 0 else ConnectionResetError)
        taken = data[: self.room]
        self.room -= len(taken)
        self.out += taken
        return len(taken)

    def write(self, data: bytes) -> None:
        self.waiting += data
        self.drain()

    def drain(self) -> None:
        if self.room > 0 and self.waiting:
            taken, self.waiting = self.waiting[: self.room], self.waiting[self.room :]
            self.room -= len(taken)
            self.out += taken

    def get_write_buffer_size(self) -> int:
        return len(self.waiting)


class Stream:
    """On a clock that is set by hand."""

    def __init__(self, *, straight: bool = True) -> None:
        self.now = 0.0
        self.line = Line()
        self.gaps = Histogram(BOUNDS)
        send = self.line.send if straight else None
        self.passing = Passing(self.line, send, lambda: self.now, self.gaps)  # type: ignore[arg-type]  # what it uses


def chunk(event: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(event), event)


def event(text: str, **more: object) -> bytes:
    document = {"id": "1", "choices": [{"index": 0, "delta": {"content": text}}], **more}
    return b"data: " + json.dumps(document, separators=(",", ":")).encode() + b"\n\n"


def test_text_passes_as_it_is() -> None:
    stream = Stream()
    pieces = [chunk(event(text)) for text in ("a", "b" * 300, "", 'say "usage" and "error"', "\u4f60\n")]
    assert all(stream.passing.take(piece) for piece in pieces)
    assert stream.line.out == b"".join(pieces)
    assert stream.passing.events == len(pieces)


@pytest.mark.parametrize(
    "piece",
    [
        chunk(event("a", usage={"prompt_tokens": 1, "completion_tokens": 2})),
        chunk(b'data: {"choices":[{"usage":null}],"usage":{"prompt_tokens":1,"completion_tokens":2}}\n\n'),
        chunk(b'data: {"error": {"message": "CUDA out of memory", "type": "internal_error"}}\n\n'),
        chunk(b"data: [DONE]\n\n"),
        chunk(b": keep-alive, and a good deal of it so that it is long enough\n\n"),
        chunk(b'event: content_block_delta\ndata: {"type": "content_block_delta"}\n\n'),
        chunk(event("half of an event")[:-1]),
        chunk(event("a")) * 2,
        chunk(event("a") * 2),
        chunk(event("a") + b'data: {"error": {"message": "CUDA out of memory", "type": "internal_error"}}\n\n'),
        chunk(event("a"))[:-2],
        chunk(event("a")).replace(b"\r\n", b";ext=1\r\n", 1),
        chunk(event("a")).replace(chunk(event("a"))[:2], b"FF", 1),
        chunk(event("a" * MAX_CHUNK)),
        b"0\r\n\r\n",
        b"",
    ],
    ids=lambda piece: repr(piece[:40]),
)
def test_everything_else_is_looked_into(piece: bytes) -> None:
    stream = Stream()
    assert not stream.passing.take(piece)
    assert not stream.line.out and stream.passing.events == 0 and stream.gaps.sum == 0.0


def test_usage_that_is_null_is_text() -> None:
    stream = Stream()
    assert stream.passing.take(chunk(event("a", usage=None)))


def changed(usual: bytes, cut: tuple[int, int], put: bytes) -> bytes:
    start, length = cut[0] % len(usual), cut[1]
    return usual[:start] + put + usual[start + length :]


@given(
    st.text(max_size=60),
    st.tuples(st.integers(0, 500), st.integers(0, 12)),
    st.one_of(
        st.binary(max_size=6),
        st.sampled_from([b'"usage":null,"usage":{', b'"usage":{', b'"usage":null', b'"error":', b"\n\n", b"\r\n"]),
    ),
)
def test_what_passes_would_have_come_out_of_the_relay_the_same(text: str, cut: tuple[int, int], put: bytes) -> None:
    """The relay reads; this only looks at the edges. Where it passes something on, reading it changes nothing."""
    inside = changed(event(text), cut, put)
    stream, relay = Stream(), EventRelay(hide_usage=True)
    assert relay.feed(event("before")) and relay.steady
    if stream.passing.take(chunk(inside)):
        assert relay.feed(inside) == inside and relay.steady
        assert relay.usage is None and not relay.done


@given(st.lists(st.one_of(st.sampled_from(BOUNDS), st.floats(0.0, 3.0)), max_size=30))
def test_gaps_are_counted_as_a_histogram_counts_them(gaps: list[float]) -> None:
    stream, expected = Stream(), Histogram(BOUNDS)
    piece = chunk(event("a"))
    for gap in gaps:
        before = stream.now
        stream.now += gap
        assert stream.passing.take(piece)
        expected.observe(stream.now - before)
    assert stream.gaps.counts == expected.counts
    assert stream.gaps.sum == expected.sum
    assert stream.passing.last_at == stream.now


def test_the_first_piece_goes_through_the_transport_and_the_others_past_it() -> None:
    stream, piece = Stream(), chunk(event("a"))
    for sends in (0, 1, 2):
        assert stream.passing.take(piece) and stream.line.sends == sends
    stream.passing.straight = False  # something else was written to the transport
    for sends in (2, 3):
        assert stream.passing.take(piece) and stream.line.sends == sends
    assert stream.line.out == piece * 5


def test_without_a_socket_all_goes_through_the_transport() -> None:
    stream, piece = Stream(straight=False), chunk(event("a"))
    assert all(stream.passing.take(piece) for _ in range(3))
    assert stream.line.out == piece * 3 and stream.line.sends == 0


def test_a_broken_socket_is_the_transports_to_find_out() -> None:
    stream, piece = Stream(), chunk(event("a"))
    assert stream.passing.take(piece)
    stream.line.room = -1
    assert stream.passing.take(piece) and stream.passing.take(piece)
    assert stream.line.waiting == piece * 2 and stream.line.sends == 1


what_happens = st.lists(
    st.one_of(st.sampled_from(["piece", "other", "drain"]), st.integers(0, 200)), min_size=1, max_size=40
)


@given(what_happens)
def test_whatever_the_socket_takes_the_order_is_kept(steps: list[str | int]) -> None:
    """A number: so many bytes of room. "other": what is not text is written to the transport as the exchange does."""
    stream, written = Stream(), b""
    for number, step in enumerate(steps):
        if isinstance(step, int):
            stream.line.room = step
            continue
        if step == "drain":
            stream.line.drain()
            continue
        data = chunk(event(f"<{number}>"))
        written += data
        if step == "piece":
            assert stream.passing.take(data)
        else:
            stream.passing.straight = False
            stream.line.write(data)
    assert stream.line.out + stream.line.waiting == written
