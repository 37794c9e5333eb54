"""Requests out of bytes, however they are cut; and what is refused."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kilocard.core.errors import BodyTooLarge, ClientError, HeaderTooLarge
from kilocard.wire.http1 import Request, RequestReader, chunk, response_head, split_target

POST = b"POST /v1/chat/completions?x=1 HTTP/1.1\r\nHost: a\r\nX-Two: 1\r\nX-Two: 2\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED_HEAD = b"POST /b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNKED = CHUNKED_HEAD + b"3;ext=1\r\nabc\r\n2\r\nde\r\n0\r\nTrail: er\r\n\r\n"
GET = b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n"


def read(*pieces: bytes, **limits: int) -> list[Request]:
    reader = RequestReader(**limits)
    return [request for piece in pieces for request in reader.feed(piece)]


def test_a_request_with_all_its_parts() -> None:
    (request,) = read(POST)
    assert request.method == "POST"
    assert request.target == "/v1/chat/completions?x=1"
    assert (request.path, request.query) == ("/v1/chat/completions", "x=1")
    assert request.headers == {"host": "a", "x-two": "1, 2", "content-length": "5"}
    assert request.body == b"hello"
    assert request.keep_alive
    assert request.version == "1.1"


def test_chunks_are_joined_and_trailers_dropped() -> None:
    (request,) = read(CHUNKED)
    assert request.body == b"abcde"
    assert "trail" not in request.headers


@given(cuts=st.lists(st.integers(0, len(POST + CHUNKED + GET)), max_size=12))
@settings(max_examples=100, deadline=None)
def test_the_cut_of_the_bytes_makes_no_difference(cuts: list[int]) -> None:
    whole = POST + CHUNKED + GET
    edges = [0, *sorted(cuts), len(whole)]
    pieces = [whole[a:b] for a, b in itertools.pairwise(edges)]
    assert read(*pieces) == read(whole)
    assert [request.path for request in read(*pieces)] == ["/v1/chat/completions", "/b", "/health"]


def test_one_byte_at_a_time() -> None:
    whole = POST + CHUNKED + GET
    assert len(read(*[whole[i : i + 1] for i in range(len(whole))])) == 3


@pytest.mark.parametrize(
    ("head", "keeps"),
    [
        (b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n", False),
        (b"GET / HTTP/1.0\r\n\r\n", False),
        (b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", True),
        (b"CONNECT a:1 HTTP/1.1\r\n\r\n", False),
    ],
)
def test_who_keeps_the_connection(head: bytes, keeps: bool) -> None:
    (request,) = read(head)
    assert request.keep_alive is keeps


def test_nothing_is_read_after_the_last_request() -> None:
    reader = RequestReader()
    (request,) = reader.feed(b"GET /a HTTP/1.1\r\nConnection: close\r\n\r\nGET /b HTTP/1.1\r\n\r\n")
    assert request.path == "/a"
    assert reader.ended
    assert reader.feed(GET) == []


def test_an_offer_to_upgrade_is_ignored_and_its_body_is_not_the_next_request() -> None:
    offer = b"Connection: upgrade\r\nUpgrade: h2c\r\n"
    smuggled = b"GET /smuggled HTTP/1.1\r\n\r\n"
    sized = b"POST /a?b HTTP/1.1\r\n" + offer + b"Content-Length: %d\r\n\r\n%b" % (len(smuggled), smuggled)
    chunked = b"PUT /c HTTP/1.1\r\n" + offer + b"Transfer-Encoding: chunked\r\n\r\n" + chunk(b"def") + b"0\r\n\r\n"
    bodyless = b"GET /d HTTP/1.1\r\n" + offer + b"\r\n"
    whole = sized + chunked + bodyless + GET
    got = read(whole)
    assert [(r.method, r.path, r.body) for r in got] == [
        ("POST", "/a", smuggled),
        ("PUT", "/c", b"def"),
        ("GET", "/d", b""),
        ("GET", "/health", b""),
    ]
    assert got[0].headers["upgrade"] == "h2c"
    assert read(*[whole[i : i + 1] for i in range(len(whole))]) == got


@pytest.mark.parametrize(
    "bad",
    [
        b"POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"GET / HTTP/1.1\nHost: a\n\n",
        b"GET / HTTP/1.1\r\nHost : a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\x00b\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: +3\r\n\r\nabc",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01",
    ],
)
def test_ambiguous_framing_is_refused(bad: bytes) -> None:
    reader = RequestReader()
    with pytest.raises(ClientError) as caught:
        reader.feed(bad)
    assert caught.value.http_status == 400
    with pytest.raises(ClientError):
        reader.feed(GET)  # never reads on


def test_a_good_request_before_a_bad_one_is_served() -> None:
    reader = RequestReader()
    assert [r.path for r in reader.feed(GET + b"nonsense\r\n\r\n")] == ["/health"]
    assert reader.error is not None
    with pytest.raises(ClientError):
        reader.feed(b"")


def test_limits_hold_however_the_bytes_come() -> None:
    long_value = b"GET / HTTP/1.1\r\nX: " + b"a" * 5000
    with pytest.raises(HeaderTooLarge):
        read(long_value + b"\r\n\r\n", max_head_bytes=1000)
    with pytest.raises(HeaderTooLarge):
        read(*[long_value[i : i + 100] for i in range(0, 5000, 100)], max_head_bytes=1000)
    with pytest.raises(HeaderTooLarge):
        read(b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 200 + b"\r\n")
    with pytest.raises(BodyTooLarge):  # refused from the head alone
        read(b"POST / HTTP/1.1\r\nContent-Length: 1001\r\n\r\n", max_body_bytes=1000)
    with pytest.raises(BodyTooLarge):
        read(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", b"3e9\r\n" + b"a" * 1001, max_body_bytes=1000)
    with pytest.raises(HeaderTooLarge):  # a chunk extension without end
        read(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3;", *[b"x" * 100] * 20, max_head_bytes=1000)


def test_a_large_body_does_not_count_as_head() -> None:
    body = b"b" * 9000
    head = b"POST / HTTP/1.1\r\nContent-Length: 9000\r\n\r\n"
    (request,) = read(head + body, max_head_bytes=1000)
    assert request.body == body
    (request,) = read(head, *[body[i : i + 700] for i in range(0, 9000, 700)], max_head_bytes=1000)
    assert request.body == body


def test_continue_is_wanted_until_the_body_comes() -> None:
    reader = RequestReader()
    assert reader.feed(b"POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n") == []
    assert reader.wants_continue
    assert len(reader.feed(b"ok")) == 1
    assert not reader.wants_continue


@pytest.mark.parametrize(
    ("target", "parts"),
    [
        ("/a?b=c?d", ("/a", "b=c?d")),
        ("http://host:1/a?b", ("/a", "b")),
        ("http://host", ("/", "")),
        ("/a?u=http://b", ("/a", "u=http://b")),
        ("*", ("*", "")),
    ],
)
def test_targets(target: str, parts: tuple[str, str]) -> None:
    assert split_target(target) == parts


def test_a_response_head() -> None:
    assert response_head(200, [("a", "b")]) == b"HTTP/1.1 200 OK\r\na: b\r\n\r\n"
    with pytest.raises(ValueError, match="line break"):
        response_head(200, [("a", "b\r\nset-cookie: c")])


def test_chunks() -> None:
    assert chunk(b"x" * 26) == b"1a\r\n" + b"x" * 26 + b"\r\n"
    assert chunk(b"") == b""


@pytest.mark.parametrize("version", ["HTTP/1.0", "HTTP/1.1\r\nconnection: close"])
def test_nothing_follows_the_last_request(version: str) -> None:
    """Also behind an offer of another protocol, whose body is read by a parser that has not seen the head."""
    head = (
        f"POST /a {version}\r\nhost: x\r\nconnection: upgrade\r\nupgrade: h2c\r\ncontent-length: 2\r\n\r\nhi".encode()
    )
    reader = RequestReader()
    requests = reader.feed(head + b"GET /hidden HTTP/1.1\r\nhost: x\r\n\r\n")
    assert [request.path for request in requests] == ["/a"]
    assert reader.ended


@pytest.mark.parametrize(
    "raw",
    [
        b"GET / HTTP/0.9\r\nhost: x\r\n\r\n",
        b"GET / HTTP/2.0\r\nhost: x\r\n\r\n",
        b"POST / HTTP/1.0\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    ],
)
def test_versions_and_codings_that_are_not_read_here(raw: bytes) -> None:
    with pytest.raises(ClientError):
        RequestReader().feed(raw)
