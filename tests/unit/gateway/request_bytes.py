"""Requests as bytes, good ones and odd ones, for the framer's tests."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from hypothesis import strategies as st

from kilocard.core.errors import KilocardError
from kilocard.gateway.arrival import Arrival
from kilocard.gateway.framing import RequestFramer

MAX_HEAD = 2000
MAX_BODY = 3000
MAX_URL = 500


@dataclass(frozen=True)
class Sent:
    """One request: the bytes that go out, and what shall arrive."""

    raw: bytes
    method: bytes
    path: bytes
    query: bytes
    #: header lines that a replica shall get, in their order, content-length and the gateway's own left aside
    forward: bytes
    body: bytes


def framer() -> RequestFramer:
    return RequestFramer(MAX_HEAD, MAX_BODY, MAX_URL)


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted({cut for cut in cuts if 0 < cut < len(data)}), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges) if a < b]


def outcome(one: RequestFramer, *data: bytes) -> tuple[list[tuple[object, ...]], tuple[type, str] | None]:
    """What came of some reads: the arrivals, and the refusal if there is one."""
    for piece in data:
        one.feed(piece)
    arrivals, one.arrivals = one.arrivals, []
    return [plain(arrival) for arrival in arrivals], refusal(one.refusal)


def plain(arrival: Arrival) -> tuple[object, ...]:
    """An arrival without the head's own word on its length, which a remembered head has of an earlier request."""
    head = arrival.head._replace(content_length=None)
    return (arrival.method, arrival.path, arrival.query, head, arrival.body, arrival.keep_alive, arrival.version)


def refusal(error: KilocardError | None) -> tuple[type, str] | None:
    return None if error is None else (type(error), error.code)


KEPT = [
    b"accept: */*",
    b"content-type: application/json",
    b"X-Thing:no-space",
    b"x-utf8: \xe8\xaf\xbb",
    b"x-empty:",
    b"x-content-length: 7",
    b"traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
]
DROPPED = [  # an API key goes on by another way, see Inbound
    b"Authorization: Bearer k",
    b"X-Api-Key: k",
    b"Connection: keep-alive",
    b"Keep-Alive: timeout=5",
    b"TE: trailers",
    b"PROXY-CONNECTION: keep-alive",
    b"x-forwarded-for: 10.0.0.1",
    b"Accept-Encoding: gzip",
]

targets = st.sampled_from(
    [
        (b"/v1/chat/completions", b"/v1/chat/completions", b""),
        (b"/v1/completions?a=b?c", b"/v1/completions", b"?a=b?c"),
        (b"http://gateway/v1/models", b"/v1/models", b""),
        (b"/", b"/", b""),
    ]
)
bodies = st.one_of(
    st.sampled_from([b"", b"{}", b'{"model":"m"}', b"POST / HTTP/1.1\r\ncontent-length: 3\r\n\r\nabc", b"0\r\n\r\n"]),
    st.binary(max_size=60),
    st.integers(1, MAX_BODY).map(lambda size: b"x" * size),
)


@st.composite
def counted(draw: st.DrawFn) -> Sent:
    """A good request with a Content-Length (or none, and no body)."""
    target, path, query = draw(targets)
    lines = draw(st.permutations(KEPT + DROPPED))[: draw(st.integers(0, 16))]
    body = draw(bodies)
    raw_lines = list(lines)
    raw_lines.insert(draw(st.integers(0, len(raw_lines))), b"Host: gateway")
    if body or draw(st.booleans()):
        spelling = draw(
            st.sampled_from([b"content-length: ", b"Content-Length: ", b"CONTENT-LENGTH:", b"Content-length: "])
        )
        raw_lines.insert(draw(st.integers(0, len(raw_lines))), spelling + b"%d" % len(body))
    head = b"\r\n".join([b"POST %b HTTP/1.1" % target, *raw_lines])
    forward = b"".join(line + b"\r\n" for line in lines if line in KEPT)
    return Sent(head + b"\r\n\r\n" + body, b"POST", path, query, forward, body)


@st.composite
def chunked(draw: st.DrawFn) -> Sent:
    """A good request with a chunked body, extensions and trailers among it."""
    target, path, query = draw(targets)
    lines = draw(st.permutations(KEPT))[: draw(st.integers(0, 8))]
    body = draw(bodies)
    coded = b""
    for piece in pieces(body, draw(st.lists(st.integers(0, len(body)), max_size=5))):
        coded += b"%x%b\r\n%b\r\n" % (len(piece), draw(st.sampled_from([b"", b";x=y"])), piece)
    coded += b"0\r\n" + draw(st.sampled_from([b"", b"x-trailer: 1\r\n"])) + b"\r\n"
    head = b"\r\n".join([b"POST %b HTTP/1.1" % target, b"host:gateway", *lines, b"Transfer-Encoding: chunked"])
    forward = b"".join(line + b"\r\n" for line in lines)
    return Sent(head + b"\r\n\r\n" + coded, b"POST", path, query, forward, body)


#: lines that make a head bad, or that a careless memory would take for another's
ODD = [
    b"content-length: 2",
    b"Content-Length: 2",
    b"content-length: 3",
    b"content-length:2",
    b"content-length: 2 ",
    b"content-length: +2",
    b"content-length: 0x2",
    b"content-length: 2, 2",
    b"content-length: 99999999999999999999",
    b"content-length: 4000",
    b"content-length : 2",
    b"content length: 2",
    b"transfer-encoding: chunked",
    b"Transfer-Encoding: gzip, chunked",
    b"transfer-encoding: identity",
    b"transfer-encoding:\x0bchunked",
    b" folded: 2",
    b"\tcontent-length: 2",
    b"x: a\ncontent-length: 2",
    b"x: a\n",
    b"x: a\rb",
    b"x: a\x00b",
    b"\x00x: a",
    b"no colon",
    b": no name",
    b"connection: close",
    b"connection: x-thing",
    b"Connection: upgrade",
    b"Upgrade: websocket",
    b"expect: 100-continue",
    b"x: " + b"y" * 1990,
]


@st.composite
def odd_heads(draw: st.DrawFn) -> bytes:
    """A head that is good or bad, from few enough lines that the next one is often nearly the same, and its body."""
    first = draw(st.sampled_from([b"POST /v1/a HTTP/1.1", b"POST /v1/a HTTP/1.0", b"GET /v1/a HTTP/1.1"]))
    lines = [b"host: x", b"X-Thing: 1"]
    length = draw(st.sampled_from([b"content-length: %d", b"Content-Length: %d", b"CONTENT-LENGTH: %d", b""]))
    body = draw(st.sampled_from([b"", b"{}", b"{ }", b"x" * 2999, b"x" * 3001]))
    if length:
        lines.append(length % len(body))
    lines += draw(st.lists(st.sampled_from(ODD), max_size=2))
    lines = draw(st.permutations(lines)) if draw(st.booleans()) else lines
    return b"\r\n".join([first, *lines]) + b"\r\n\r\n" + body
