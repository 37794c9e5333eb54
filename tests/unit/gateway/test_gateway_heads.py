"""Which header fields go on, in both directions: hop-by-hop ones never, all others as they came."""

from __future__ import annotations

import httptools
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kilocard.core.errors import ClientError
from kilocard.gateway.head_memo import around_length
from kilocard.gateway.heads import read_request_head, read_response_head, status_line

#: RFC 9110 §7.6.1, and what the next hop shall not have from a client
NEVER_TO_A_REPLICA = [
    "connection", "content-length", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te",
    "trailer", "transfer-encoding", "upgrade", "accept-encoding", "expect", "forwarded", "host", "x-forwarded-for",
    "x-forwarded-host", "x-forwarded-proto", "x-kilocard-receipt", "x-kilocard-timeout", "x-real-ip", "x-request-id",
    "authorization", "x-api-key",  # these two in `credentials`
]  # fmt: skip
NEVER_TO_A_CLIENT = [
    "connection", "content-length", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te",
    "trailer", "transfer-encoding", "upgrade", "server", "x-accel-buffering", "x-request-id",
]  # fmt: skip

names = st.text(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.!#$%&'*+^`|~", min_size=1, max_size=20
)
values = st.binary(max_size=30).map(lambda value: bytes(byte for byte in value if byte == 9 or 32 <= byte != 127))


def spelled(name: str, seed: int) -> bytes:
    """One of the many ways to write a name in large and small letters."""
    return "".join(c.upper() if (seed >> i) & 1 else c.lower() for i, c in enumerate(name)).encode()


def request(*lines: bytes) -> bytes:
    return b"\r\n".join([b"POST / HTTP/1.1", b"host: x", *lines])


def response(*lines: bytes) -> bytes:
    return b"\r\n".join([b"HTTP/1.1 200 OK", *lines])


others = st.lists(st.tuples(names, values), max_size=8).map(
    lambda fields: [
        name.encode() + b":" + value
        for name, value in fields
        # `content_type` goes no further though `content-type` does: CGI servers take the one for the other
        if name.lower().replace("_", "-") not in {*NEVER_TO_A_REPLICA, *NEVER_TO_A_CLIENT}
        and name.lower() not in {"content_type", "content_encoding", "location", "content-location"}
    ]
)


@settings(max_examples=150)
@given(others, st.sampled_from(NEVER_TO_A_REPLICA), st.integers(0, 2**20), st.integers(0, 8))
def test_to_a_replica(lines: list[bytes], name: str, spelling: int, at: int) -> None:
    value = {"transfer-encoding": b": chunked"}.get(name, b": 1")
    with_it = [*lines[:at], spelled(name, spelling) + value, *lines[at:]]
    named = {b"1"} if name == "connection" else set()
    wanted = b"".join(line + b"\r\n" for line in lines if line.partition(b":")[0] not in named)
    raw = request(*with_it)
    if name == "host":  # two are refused
        raw = raw.replace(b"host: x\r\n", b"", 1)
    assert read_request_head(raw).forward == wanted


@settings(max_examples=150)
@given(others, st.sampled_from(NEVER_TO_A_CLIENT), st.integers(0, 2**20), st.integers(0, 8))
def test_to_a_client(lines: list[bytes], name: str, spelling: int, at: int) -> None:
    value = {"transfer-encoding": b": chunked"}.get(name, b": 1")
    with_it = [*lines[:at], spelled(name, spelling) + value, *lines[at:]]
    named = {b"1"} if name == "connection" else set()
    wanted = b"".join(line + b"\r\n" for line in lines if line.partition(b":")[0] not in named)
    head, length = read_response_head(response(*with_it), 200)
    assert head.block == status_line(200) + wanted
    assert length == (1 if name == "content-length" else None)


@pytest.mark.parametrize(
    "connection", [b"x-a", b"close, X-A", b"x-a,x-c", b"keep-alive ,\tx-a ,", b"X-A\r\nconnection: x-c"]
)
def test_fields_that_connection_names_stay_in_their_hop(connection: bytes) -> None:
    lines = (b"x-a: 1", b"X-A:2", b"x-ab: 3", b"connection: " + connection, b"x-b: x-a")
    wanted = b"x-ab: 3\r\nx-b: x-a\r\n"
    assert read_request_head(request(*lines)).forward == wanted
    head, _ = read_response_head(response(*lines), 200)
    assert head.block == status_line(200) + wanted
    assert head.close is (b"close" in connection)


@pytest.mark.parametrize("spelling", [0, 0b1, 0b10000001, 2**20 - 1])
def test_what_is_read_of_a_request(spelling: int) -> None:
    head = read_request_head(
        request(
            spelled("content-type", spelling) + b":  application/json; charset=utf-8 ",
            spelled("x-request-id", spelling) + b": abc ",
            spelled("content-length", spelling) + b": 0012 ",
            spelled("expect", spelling) + b": 100-Continue",
        )
    )
    assert head.content_type == b"application/json; charset=utf-8"
    assert (head.request_id, head.content_length, head.expects_continue, head.chunked) == (b"abc", 12, True, False)
    assert read_request_head(request(spelled("transfer-encoding", spelling) + b": chunked")).chunked
    nothing = read_request_head(request())
    assert nothing[:6] == (b"", None, b"", None, False, False)
    assert (nothing.authorization, nothing.api_key, nothing.credentials) == (None, None, b"")


def test_an_http_1_0_client_waits_for_no_100() -> None:
    """RFC 9110 §10.1.1: the expectation is to be ignored, since it would read the 100 as the answer."""
    raw = b"POST / HTTP/1.0\r\nexpect: 100-continue\r\ncontent-length: 2"
    assert not read_request_head(raw, "1.0").expects_continue


@pytest.mark.parametrize(
    ("value", "seconds"),
    [(b"2.5", 2.5), (b" 30 ", 30.0), (b"0.001", 0.001), (b"0", None), (b"0.0", None), (b"-1", None), (b"inf", None),
     (b"1e3", None), (b"", None), (b"9" * 400, None), (b"5, 6", None)],
)  # fmt: skip
def test_a_clients_deadline(value: bytes, seconds: float | None) -> None:
    head = request(b"X-Kilocard-Timeout: " + value)
    if seconds is None:
        with pytest.raises(ClientError, match="number of seconds") as refusal:
            read_request_head(head)
        assert refusal.value.code == "invalid_timeout"
    else:
        assert read_request_head(head).timeout == seconds
    assert read_request_head(request(b"accept: */*")).timeout is None


@pytest.mark.parametrize("spelling", [0, 0b1, 0b10000001, 2**20 - 1])
def test_keys_are_apart_from_all_else(spelling: int) -> None:
    bearer = spelled("authorization", spelling) + b":  Bearer k "
    key = spelled("x-api-key", spelling) + b": k2"
    head = read_request_head(request(b"a: b", bearer, key, b"x-authorization: c"))
    assert (head.authorization, head.api_key) == (b"Bearer k", b"k2")
    assert head.credentials == bearer + b"\r\n" + key + b"\r\n"
    assert head.forward == b"a: b\r\nx-authorization: c\r\n"


@pytest.mark.parametrize(
    ("connection", "left"),
    [
        (b"authorization", b"x-api-key: k2\r\n"),
        (b"X-Api-Key", b"Authorization: Bearer k\r\n"),
        (b"keep-alive, X-API-KEY , Authorization", b""),
    ],
)
def test_keys_that_connection_names_stay_in_their_hop_too(connection: bytes, left: bytes) -> None:
    head = read_request_head(request(b"Authorization: Bearer k", b"x-api-key: k2", b"connection: " + connection))
    assert (head.authorization, head.api_key) == (b"Bearer k", b"k2")  # for this hop they are there
    assert head.credentials == left
    assert head.forward == b""


@pytest.mark.parametrize("spelling", [0, 0b1, 0b10000001, 2**20 - 1])
def test_what_is_read_of_a_response(spelling: int) -> None:
    lines = (
        spelled("content-type", spelling) + b": Text/Event-Stream; charset=utf-8",
        spelled("transfer-encoding", spelling) + b": chunked",
        spelled("content-encoding", spelling) + b": gzip",
        spelled("connection", spelling) + b": Close",
    )
    head, length = read_response_head(response(*lines), 200)
    assert (head.stream, head.chunked, head.encoded, head.close, length) == (True, True, True, True, None)
    assert not read_response_head(response(*lines), 500)[0].stream
    plain, _ = read_response_head(response(b"content-encoding: identity", b"content-type: text/plain"), 200)
    assert (plain.stream, plain.chunked, plain.encoded, plain.close) == (False, False, False, False)


@pytest.mark.parametrize(
    ("said", "goes_on"),
    [
        (b"http://10.0.0.3:8000/v1/models/?a=b", b"/v1/models/?a=b"),
        (b"HTTPS://user@engine.internal", b"/"),
        (b"http://[fd00::3]:80?x=/y", b"?x=/y"),
        (b"//10.0.0.3/v1", b"/v1"),
        (b"/v1/models?next=http://10.0.0.3/", b"/v1/models?next=http://10.0.0.3/"),
        (b"v1/models", b"v1/models"),
    ],
)
@pytest.mark.parametrize("name", [b"location", b"Content-Location", b"LOCATION"])
def test_where_a_replica_lives_is_in_no_redirect(name: bytes, said: bytes, goes_on: bytes) -> None:
    head, _ = read_response_head(response(name + b": " + said, b"content-type: text/plain"), 307)
    assert name + b": " + goes_on + b"\r\n" in head.block


def test_a_stream_is_marked_for_proxies_once() -> None:
    head, _ = read_response_head(
        response(b"content-type: text/event-stream", b"Cache-Control: max-age=9", b"x: y"), 200
    )
    block = head.stream_block()
    assert block.lower().count(b"cache-control:") == 1 and b"cache-control: no-cache\r\n" in block
    assert b"x-accel-buffering: no\r\n" in block and b"x: y\r\n" in block
    assert block.startswith(b"HTTP/1.1 200 OK\r\n") and block.endswith(b"\r\n") and b"\r\n\r\n" not in block


@pytest.mark.parametrize("raw", [request(b"x: a\nb: c"), request(b"x: a", b"\n"), request(b"x: a") + b"\n"])
def test_a_lone_line_feed_is_refused(raw: bytes) -> None:
    with pytest.raises(ClientError) as caught:
        read_request_head(raw)
    assert caught.value.code == "invalid_http"


def test_status_lines() -> None:
    assert status_line(404) == b"HTTP/1.1 404 Not Found\r\n"
    assert status_line(599) == b"HTTP/1.1 599 Status\r\n"


@settings(max_examples=200)
@given(
    others, st.sampled_from([b"content-length: ", b"Content-Length: "]), st.integers(0, 10**15 - 1), st.integers(0, 8)
)
def test_around_a_length_is_all_but_its_digits(lines: list[bytes], field: bytes, length: int, at: int) -> None:
    raw = request(*lines[:at], field + b"%d" % length, *lines[at:])
    around = around_length(raw)
    assert around is not None
    assert (b"%d" % length).join(around) == raw


@pytest.mark.parametrize(
    "line",
    [b"content-length:2", b"content-length: 2 ", b"content-length: +2", b"content-length: ", b"CONTENT-LENGTH: 2",
     b"content-length: 1234567890123456", b"content-length: 2, 2", b" content-length: 2", b"x-content-length: 2"],
)  # fmt: skip
def test_an_unusual_length_is_not_remembered(line: bytes) -> None:
    assert around_length(request(b"a: b", line, b"c: d")) is None


ODD_LENGTHS = st.sampled_from(
    [b"content-length: 7", b"Content-Length: 7", b"content-length: 8", b"transfer-encoding: chunked", b" folded: 7",
     b"content-length : 7", b"x: a\ncontent-length: 7", b"x: content-length: 7", b"content-length: 7\x00", b"host: y"]
)  # fmt: skip


def good(raw: bytes) -> bool:
    """llhttp's word."""
    try:
        httptools.HttpRequestParser(object()).feed_data(raw + b"\r\n\r\n")
    except httptools.HttpParserError:
        return False
    return True


@settings(max_examples=300)
@given(st.permutations([b"content-length: 5", b"host: x", b"a: b"]), st.lists(ODD_LENGTHS, max_size=2), st.data())
def test_what_is_good_around_one_length_is_good_around_all(
    lines: list[bytes], odd: list[bytes], data: st.DataObject
) -> None:
    """The memory's one assumption, held against llhttp: other digits never make a good head bad or a bad one good."""
    for line in odd:
        lines.insert(data.draw(st.integers(0, len(lines))), line)
    raw = request(*lines)
    around = around_length(raw)
    if around is not None:
        for digits in (b"0", b"00012", b"999999999999999"):
            assert good(digits.join(around)) is good(raw)
