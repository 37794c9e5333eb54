"""Requests out of a client's bytes: however they are cut, whatever came before, whatever they are."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from request_bytes import (
    MAX_BODY,
    MAX_HEAD,
    MAX_URL,
    Sent,
    chunked,
    counted,
    framer,
    odd_heads,
    outcome,
    pieces,
    refusal,
)

from kilocard.core.errors import BodyTooLarge, ClientError, HeaderTooLarge
from kilocard.gateway.framing import MAX_ARRIVALS, RequestFramer

HEAD = b"POST /v1/a HTTP/1.1\r\nhost: x\r\n"


def request(body: bytes, *lines: bytes) -> bytes:
    return HEAD + b"".join(line + b"\r\n" for line in lines) + b"content-length: %d\r\n\r\n%b" % (len(body), body)


@settings(max_examples=150)
@given(st.data(), st.lists(counted(), max_size=4), st.none() | chunked())
def test_any_cut_of_any_requests_gives_the_same_arrivals(
    data: st.DataObject, behind_one_another: list[Sent], last: Sent | None
) -> None:
    sent = [*behind_one_another, *([last] if last else [])]
    raw = b"".join(one.raw for one in sent)
    cuts = data.draw(st.lists(st.integers(0, len(raw)), max_size=12))
    one = framer()
    arrivals, refused = outcome(one, *pieces(raw, cuts))
    assert refused is None
    assert [(a[0], a[1], a[2], a[3].forward, a[4]) for a in arrivals] == [  # type: ignore[attr-defined]
        (each.method, each.path, each.query, each.forward, each.body) for each in sent
    ]
    assert not one.in_message and one.body_bytes == 0
    assert (arrivals, refused) == outcome(framer(), raw)


@settings(max_examples=10)
@given(counted().filter(lambda one: len(one.raw) < 800), chunked().filter(lambda one: len(one.raw) < 800))
def test_one_byte_at_a_time(first: Sent, last: Sent) -> None:
    raw = first.raw + last.raw
    assert outcome(framer(), *(raw[i : i + 1] for i in range(len(raw)))) == outcome(framer(), raw)


@settings(max_examples=300)
@given(st.lists(odd_heads(), min_size=2, max_size=5))
def test_what_came_before_never_changes_an_answer(requests: list[bytes]) -> None:
    remembering = framer()
    for raw in requests:
        fresh = framer()
        assert outcome(remembering, raw) == outcome(fresh, raw)
        assert remembering.in_message == fresh.in_message
        assert remembering.body_bytes == fresh.body_bytes
        if fresh.refusal is not None or fresh.in_message:
            return


@settings(max_examples=300)
@given(odd_heads())
def test_a_bad_head_is_bad_behind_good_ones(raw: bytes) -> None:
    """The one that smuggling is made of: a good request first, so that everything about it is remembered."""
    for good in (request(b"{}"), request(b"{}", b"X-Thing: 1"), raw.replace(b"3001", b"2", 1)):
        one = framer()
        if outcome(one, good)[1] is None and not one.in_message:
            assert outcome(one, raw) == outcome(framer(), raw)


@pytest.mark.parametrize(
    "line",
    [
        b"content-length: 2",
        b"Content-Length: 2",
        b"Content-Length: 3",
        b"content-length : 2",
        b"transfer-encoding: chunked",
        b"Transfer-Encoding: identity",
        b" folded",
        b"\tcontent-length: 2",
        b"x: a\ncontent-length: 2",
        b"x: a\x00b",
        b"x: a\rb",
        b"x\x00: a",
        b"no colon",
        b": no name",
    ],
)
@pytest.mark.parametrize("first", [b"", b"X-Thing: 1\r\n"])
def test_heads_that_two_readers_could_read_in_two_ways(first: bytes, line: bytes) -> None:
    """RFC 9112 §6.1, §5.1, §5.2, RFC 9110 §5.5: refused, as whichever of the two orders they come in."""
    length = b"content-length: 2\r\n"
    for head in (first + line + b"\r\n" + length, first + length + line + b"\r\n"):
        for before in (b"", request(b"{}"), request(b"[]", b"X-Thing: 1")):
            one = framer()
            one.feed(before)
            assert one.refusal is None
            one.arrivals.clear()
            one.feed(HEAD + head + b"\r\n{}")
            assert refusal(one.refusal) == (ClientError, "invalid_http"), (before, head)
            assert not one.arrivals


def test_requests_that_differ_only_in_their_length() -> None:
    one = framer()
    sizes = [2, 7, 0, 2999, 3000, 1]
    for size in sizes:
        one.feed(request(b"x" * size))
    assert [len(arrival.body) for arrival in one.arrivals] == sizes
    one.feed(request(b"x" * 3001))
    assert isinstance(one.refusal, BodyTooLarge)
    assert len(one.arrivals) == len(sizes)


@pytest.mark.parametrize(
    "behind",
    [b"X-Thing: 2", b"x-thing: 1", b" folded: 1", b"x\x00hing: 1", b"x-thing:\n1", b"te: gzip, ", b"connection"],
)
def test_a_head_that_differs_only_behind_its_length(behind: bytes) -> None:
    one = framer()
    one.feed(HEAD + b"content-length: 2\r\nX-Thing: 1\r\n\r\n{}")
    assert [arrival.head.forward for arrival in one.arrivals] == [b"X-Thing: 1\r\n"]
    one.arrivals.clear()
    raw = HEAD + b"content-length: 2\r\n" + behind + b"\r\n\r\n{}"
    assert outcome(one, raw) == outcome(framer(), raw)


def test_a_request_without_a_length_between_two_that_are_alike() -> None:
    one = framer()
    one.feed(request(b"{}"))
    one.feed(b"GET /v1/models HTTP/1.0\r\n\r\n")
    one.feed(request(b"[]"))
    assert [(a.method, a.path, a.keep_alive) for a in one.arrivals] == [
        (b"POST", b"/v1/a", True),
        (b"GET", b"/v1/models", False),
        (b"POST", b"/v1/a", True),
    ]


def test_a_remembered_head_with_less_or_more_than_its_body() -> None:
    one = framer()
    one.feed(request(b"{}"))
    one.feed(request(b"[1,2]")[:-2])
    assert one.in_message and one.body_bytes == 3
    one.feed(b"2]" + request(b"[]") + request(b"{}")[:20])
    assert [arrival.body for arrival in one.arrivals] == [b"{}", b"[1,2]", b"[]"]
    assert one.in_message and one.in_head


@pytest.mark.parametrize(
    ("version", "connection", "keep_alive"),
    [
        (b"1.1", b"", True),
        (b"1.1", b"connection: close\r\n", False),
        (b"1.0", b"", False),
        (b"1.0", b"connection: keep-alive\r\n", True),
    ],
)
def test_who_wants_the_connection_kept(version: bytes, connection: bytes, keep_alive: bool) -> None:
    one = framer()
    one.feed(request(b"{}"))  # the other way, and remembered
    for _ in range(2):
        one.feed(b"POST / HTTP/%b\r\nhost: x\r\n%bcontent-length: 2\r\n\r\n{}" % (version, connection))
    assert [arrival.keep_alive for arrival in one.arrivals] == [True, keep_alive, keep_alive]
    assert one.arrivals[-1].version == version.decode()


def test_what_is_no_http_is_told_from_the_first_byte() -> None:
    for noise in (b"\x16\x03\x01\x02\x00", b"{}", b" GET / HTTP/1.1\r\n"):
        one = framer()
        one.feed(noise)
        assert refusal(one.refusal) == (ClientError, "invalid_http")


@pytest.mark.parametrize("size", [MAX_HEAD, MAX_HEAD + 1])
def test_the_largest_head(size: int) -> None:
    start = HEAD + b"x: "
    head = start + b"y" * (size - len(start))
    whole = framer()
    whole.feed(head + b"\r\n\r\n")
    assert (whole.refusal is None) is (size == MAX_HEAD)
    cut = framer()
    for piece in pieces(head + b"\r\n\r\n", [500, 1000, size]):
        cut.feed(piece)
    assert refusal(cut.refusal) == refusal(whole.refusal)
    if whole.refusal is not None:
        assert isinstance(whole.refusal, HeaderTooLarge)
    for before_the_end in range(1, 5):  # the network may cut its end too
        torn = framer()
        torn.feed((head + b"\r\n\r\n")[:-before_the_end])
        torn.feed((head + b"\r\n\r\n")[-before_the_end:])
        assert refusal(torn.refusal) == refusal(whole.refusal), before_the_end


def test_a_head_without_end_is_refused_before_it_is_whole() -> None:
    one = framer()
    fed = 0
    while one.refusal is None:
        one.feed(b"GET / HTTP/1.1\r\n" if not fed else b"x: y\r\n")
        fed += 6
        assert fed <= MAX_HEAD + 20
    assert isinstance(one.refusal, HeaderTooLarge)


def test_bodies_over_the_cap() -> None:
    one = framer()
    one.feed(HEAD + b"content-length: %d\r\n\r\n" % (MAX_BODY + 1))
    assert isinstance(one.refusal, BodyTooLarge)  # at once, not after 3,001 bytes
    one = framer()
    one.feed(HEAD + b"transfer-encoding: chunked\r\n\r\n")
    for _ in range(MAX_BODY // 100):
        one.feed(b"64\r\n" + b"x" * 100 + b"\r\n")
    assert one.refusal is None and one.body_bytes == MAX_BODY
    one.feed(b"1\r\nx\r\n")
    assert isinstance(one.refusal, BodyTooLarge)
    assert not one.arrivals


def test_behind_a_chunked_request_nothing_more_is_read() -> None:
    """Where the next one begins is not known in this design: it is the last of its connection, never misread."""
    coded = HEAD + b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
    one = framer()
    one.feed(coded + request(b"[1]"))
    assert [(arrival.body, arrival.keep_alive) for arrival in one.arrivals] == [(b"{}", False)]
    apart = framer()
    apart.feed(coded)
    apart.feed(request(b"[1]"))
    assert [(arrival.body, arrival.keep_alive) for arrival in apart.arrivals] == [(b"{}", True), (b"[1]", True)]


def test_the_wish_for_continue_ends_with_its_request() -> None:
    one = framer()
    one.feed(HEAD + b"expect: 100-continue\r\ncontent-length: 2\r\n\r\n")
    assert one.expects_continue
    one.feed(b"{}")
    assert len(one.arrivals) == 1
    assert not one.expects_continue


@settings(max_examples=200)
@given(st.lists(st.binary(max_size=400) | st.sampled_from([b"\r\n\r\n", HEAD, b"\r\n", b"0\r\n\r\n"]), max_size=12))
def test_noise_never_crashes_and_holds_little(data: list[bytes]) -> None:
    one = framer()
    for piece in data:
        one.feed(piece)
        assert one.body_bytes <= MAX_BODY + len(piece)
        assert len(one._raw) <= MAX_HEAD + 3  # and a part of its end
    if one.refusal is not None:
        assert isinstance(one.refusal, ClientError)


@settings(max_examples=200)
@given(counted() | chunked(), st.lists(st.tuples(st.integers(0, 5000), st.binary(max_size=3)), max_size=4))
def test_damaged_requests_never_crash(sent: Sent, damage: list[tuple[int, bytes]]) -> None:
    raw = sent.raw
    for at, noise in damage:
        raw = raw[: at % len(raw)] + noise + raw[at % len(raw) + len(noise) :]
    one = framer()
    one.feed(raw)
    assert one.refusal is None or isinstance(one.refusal, ClientError)
    assert one.refusal is None or refusal(one.refusal) == outcome(framer(), raw)[1]


def counted_pieces(size: int, total: int) -> list[bytes]:
    return [HEAD + b"content-length: %d\r\n\r\n" % total, *(bytes(bytearray(size)) for _ in range(total // size - 1))]


def chunked_pieces(size: int, total: int) -> list[bytes]:
    chunk = b"%x\r\n%b\r\n" % (size, bytes(size))
    return [HEAD + b"transfer-encoding: chunked\r\n\r\n", *[chunk * 100] * (total // size // 100 - 1)]


@pytest.mark.parametrize("read", [counted_pieces, chunked_pieces])
def test_a_body_in_tiny_pieces_takes_about_its_own_size(read: Callable[[int, int], list[bytes]]) -> None:
    """What the gateway's account of buffered bytes says has to be about what is there: 32 MiB, not 900."""
    total = 100_000
    one = RequestFramer(MAX_HEAD, total, MAX_URL)
    reads = read(2, total)
    tracemalloc.start()
    try:
        while reads:
            one.feed(reads.pop(0))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert one.refusal is None and one.in_message
    assert one.body_bytes > total * 0.9
    assert held < 4 * total


def test_very_many_requests_are_taken_apart_a_few_at_a_time() -> None:
    """Taken apart, a request of 30 bytes takes 20 times its size."""
    one = framer()
    one.feed(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n" * 100)
    taken = 0
    while one.arrivals:
        assert len(one.arrivals) <= MAX_ARRIVALS
        taken += len(one.arrivals)
        one.arrivals.clear()
        assert one.pent is (taken < 100)
        one.feed(b"")
    assert taken == 100
    assert not one.in_message and not one.held


@pytest.mark.parametrize("behind", [b"P", b"POST", b"\x00", HEAD])
def test_what_follows_a_chunked_body_in_one_read_ends_the_connection(behind: bytes) -> None:
    """llhttp does not say where the body ended, so what follows would be lost, or read from its middle on."""
    one = framer()
    one.feed(HEAD + b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n" + behind)
    (arrival,) = one.arrivals
    assert arrival.body == b"{}" and not arrival.keep_alive
    assert one.refusal is None


def test_an_offer_of_another_protocol_before_a_chunked_body_is_declined() -> None:
    """Java's HttpClient offers HTTP/2 with each request."""
    one = framer()
    offer = b"connection: upgrade\r\nupgrade: h2c\r\n"
    for piece in (HEAD + offer + b"transfer-encoding: chunked\r\n\r\n2\r\n{", b"}\r\n0\r\n\r\n", request(b"[]")):
        one.feed(piece)
    assert [(a.method, a.path, a.body) for a in one.arrivals] == [
        (b"POST", b"/v1/a", b"{}"),
        (b"POST", b"/v1/a", b"[]"),
    ]
    assert one.refusal is None


def test_lines_that_end_without_cr_are_refused_at_once() -> None:
    one = framer()
    one.feed(b"GET / HTTP/1.1\nhost: x\n\n")
    assert refusal(one.refusal) == (ClientError, "invalid_http")
