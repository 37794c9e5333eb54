"""A replica's response off the wire: the same however it is cut; a connection in doubt is not used again."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kilocard.dispatch.events import Fault
from kilocard.gateway.heads import ResponseHead
from kilocard.gateway.outbox import Outbox
from kilocard.gateway.replica_connections import IDLE_SECONDS, ReplicaConnections
from kilocard.gateway.upstream import MAX_HEAD, UpstreamConnection


class Wire:
    """A transport that only remembers."""

    def __init__(self) -> None:
        self.written = b""
        self.closing = False
        self.aborted = False
        self.reading = True

    def write(self, data: bytes) -> None:
        self.written += data

    def writelines(self, pieces: tuple[bytes, ...]) -> None:
        self.written += b"".join(pieces)

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.closing = self.aborted = True

    def is_closing(self) -> bool:
        return self.closing

    def pause_reading(self) -> None:
        assert self.reading
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading
        self.reading = True


@dataclass
class Got:
    """A receiver that gathers. `end`: whole, fault, stale, or None while there is more to come."""

    head: ResponseHead | None = None
    length: int | None = None
    body: bytes = b""
    end: str | None = None
    fault: Fault | None = None
    calls: list[str] = field(default_factory=list)

    def on_head(self, head: ResponseHead, length: int | None) -> None:
        assert self.head is None and self.end is None
        self.head, self.length = head, length

    def on_whole(self, head: ResponseHead, body: bytes) -> None:
        self.on_head(head, len(body))
        self.body = body
        self.on_complete()

    def on_data(self, data: bytes) -> None:
        assert self.head is not None and self.end is None and data
        self.body += data

    def on_complete(self) -> None:
        assert self.end is None
        self.end = "whole"

    def on_fault(self, fault: Fault, detail: str) -> None:
        assert self.end is None and detail
        self.end, self.fault = "fault", fault

    def on_stale(self) -> None:
        assert self.end is None and self.head is None
        self.end = "stale"

    @property
    def answer(self) -> tuple[ResponseHead | None, bytes, str | None, Fault | None]:
        return self.head, self.body, self.end, self.fault


class Replica:
    """One replica's connections, on a clock that stands still unless told otherwise."""

    def __init__(self) -> None:
        self.now = 0.0
        self.connections = ReplicaConnections("http://10.0.0.1:8000", lambda: self.now, Outbox(lambda send: send()))

    def connect(self) -> UpstreamConnection:
        connection = UpstreamConnection(self.connections)
        connection.connection_made(Wire())  # type: ignore[arg-type]
        return connection

    def ask(self, connection: UpstreamConnection, *reads: bytes, closes: bool = False) -> Got:
        got = Got()
        connection.start(got, b"POST / HTTP/1.1\r\n\r\n", b"{}")
        for data in reads:
            if not wire_of(connection).closing:
                connection.data_received(data)
        if closes or wire_of(connection).closing:
            connection.connection_lost(None)
        return got


def wire_of(connection: UpstreamConnection) -> Wire:
    wire = connection.transport
    assert isinstance(wire, Wire)
    return wire


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted({cut for cut in cuts if 0 < cut < len(data)}), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges) if a < b]


def counted(body: bytes, *lines: bytes, status: bytes = b"200 OK") -> bytes:
    head = b"".join(line + b"\r\n" for line in lines)
    return b"HTTP/1.1 %b\r\n%bcontent-length: %d\r\n\r\n%b" % (status, head, len(body), body)


CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


@dataclass(frozen=True)
class Response:
    raw: bytes
    status: int
    body: bytes
    #: the end of the connection is the end of the body
    until_close: bool = False
    #: another request may follow on this connection
    reusable: bool = True


@st.composite
def responses(draw: st.DrawFn) -> Response:
    kind = draw(st.sampled_from(["counted", "chunked", "until close", "no body"]))
    status = draw(st.sampled_from([200, 201, 400, 500, 503]))
    version, closes = draw(st.sampled_from([(b"1.1", False), (b"1.1", True), (b"1.0", False)]))
    body = draw(st.sampled_from([b"", b"{}", b"0\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n"]) | st.binary(max_size=40))
    lines = draw(st.permutations([b"content-type: application/json", b"x-a: 1", b"server: uvicorn", b"date: now"]))
    lines = lines[: draw(st.integers(0, 4))]
    if closes:
        lines.append(b"Connection: close")
    if kind == "no body":
        status, body = draw(st.sampled_from([204, 304])), b""
    elif kind == "counted":
        spelling = draw(st.sampled_from([b"content-length: ", b"Content-Length: ", b"CONTENT-LENGTH:"]))
        lines.insert(draw(st.integers(0, len(lines))), spelling + b"%d" % len(body))
    elif kind == "chunked":
        version = b"1.1"
        lines.insert(draw(st.integers(0, len(lines))), b"Transfer-Encoding: chunked")
    coded = body
    if kind == "chunked":
        cut = pieces(body, draw(st.lists(st.integers(0, 40), max_size=4)))
        coded = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in cut) + b"0\r\n\r\n"
    interim = draw(
        st.sampled_from([b"", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" * 2])
    )
    raw = interim + b"\r\n".join([b"HTTP/%b %d Word" % (version, status), *lines]) + b"\r\n\r\n" + coded
    until_close = kind == "until close"
    last = closes or until_close or version == b"1.0" or kind == "no body"
    return Response(raw, status, body, until_close, not last)


@settings(max_examples=200)
@given(responses(), st.lists(st.integers(0, 400), max_size=10), st.data())
def test_any_cut_of_a_response_is_the_same_response(response: Response, cuts: list[int], data: st.DataObject) -> None:
    replica = Replica()
    connection = replica.connect()
    got = replica.ask(connection, *pieces(response.raw, cuts), closes=response.until_close)
    assert got.end == "whole"
    assert got.head is not None and got.head.status == response.status
    assert got.body == response.body
    assert (replica.connections.idle() is connection) is response.reusable
    assert wire_of(connection).closing is (not response.reusable and not response.until_close)
    if wire_of(connection).closing or response.until_close:
        assert not replica.connections.connections


@settings(max_examples=10)
@given(responses())
def test_one_byte_at_a_time(response: Response) -> None:
    replica = Replica()
    got = replica.ask(replica.connect(), *(bytes([byte]) for byte in response.raw), closes=response.until_close)
    assert (got.end, got.body) == ("whole", response.body)


@settings(max_examples=150)
@given(responses().filter(lambda one: not one.until_close), st.integers(1, 400))
def test_a_response_that_is_cut_off_is_a_fault(response: Response, missing: int) -> None:
    short = response.raw[:-missing]
    replica = Replica()
    got = replica.ask(replica.connect(), *([short] if short else []), closes=True)
    assert (got.end, got.fault) == ("fault", Fault.RESET)
    assert response.body.startswith(got.body)
    assert not replica.connections.connections


@settings(max_examples=200)
@given(st.lists(responses(), min_size=2, max_size=5))
def test_what_came_before_never_changes_an_answer(story: list[Response]) -> None:
    """Heads are remembered for all connections of a replica; each answer is as if there were no memory."""
    replica = Replica()
    for response in story:
        got = replica.ask(replica.connect(), response.raw, closes=response.until_close)
        alone = Replica()
        assert got.answer == alone.ask(alone.connect(), response.raw, closes=response.until_close).answer


NEARLY = st.sampled_from(
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n[1]",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 500 No\r\ncontent-length: 2\r\n\r\n{}",
        b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nContent-Length: 3\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 2\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n folded: 1\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\nx: y\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nx: y\ncontent-length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\x00\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}extra",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{",
        b"HTTP/1.1 204 No\r\ncontent-length: 2\r\n\r\n",
        b"HTTP/1.1 204 No\r\ncontent-length: 2\r\n\r\n{}",
        b"HTTP/1.1 304 No\r\ncontent-length: 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n\r\n{}",
        b"HTTP/1.1 103 Early\r\ncontent-length: 0\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}",
        b"HTTP/1.1 103 Early\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 2\r\n\r\n{}",
        b"SSH-2.0-OpenSSH\r\n\r\n",
    ]
)


@settings(max_examples=300)
@given(st.lists(NEARLY, min_size=2, max_size=6))
def test_nearly_the_same_heads_are_told_apart(story: list[bytes]) -> None:
    replica = Replica()
    for raw in story:
        alone = Replica()
        connection, other = replica.connect(), alone.connect()
        assert replica.ask(connection, raw).answer == alone.ask(other, raw).answer
        assert wire_of(connection).closing is wire_of(other).closing
        assert (replica.connections.idle() is connection) is (alone.connections.idle() is other)


@pytest.mark.parametrize(
    "line",
    [b"content-length: 3", b"transfer-encoding: chunked", b" folded: 1", b"x: a\ncontent-length: 3", b"x: a\x00b",
     b"x : y", b"no colon"],
)  # fmt: skip
@pytest.mark.parametrize("remembered", [False, True])
def test_a_head_that_could_be_read_in_two_ways_is_a_fault(line: bytes, remembered: bool) -> None:
    for lines in ([line, b"content-length: 2"], [b"content-length: 2", line]):
        replica = Replica()
        if remembered:
            replica.ask(replica.connect(), counted(b"[]"))
        connection = replica.connect()
        got = replica.ask(connection, b"\r\n".join([b"HTTP/1.1 200 OK", *lines]) + b"\r\n\r\n{}")
        assert (got.end, got.fault, got.head) == ("fault", Fault.PROTOCOL, None)
        assert wire_of(connection).aborted


@settings(max_examples=60)
@given(st.sampled_from([b"x", b"\r\n", counted(b"{}"), b"HTTP/1.1"]), st.lists(st.integers(0, 90), max_size=5))
def test_more_than_was_announced_ends_the_connection(extra: bytes, cuts: list[int]) -> None:
    replica = Replica()
    connection = replica.connect()
    replica.ask(connection, counted(b"first"))
    assert replica.connections.idle() is connection
    got = replica.ask(connection, *pieces(counted(b"{}") + extra, cuts))
    assert (got.end, got.body) == ("whole", b"{}")
    assert wire_of(connection).closing
    assert replica.connections.idle() is None


@pytest.mark.parametrize("extra", [b"x", counted(b"next"), CHUNKED + b"4\r\nnext\r\n0\r\n\r\n"])
def test_more_than_a_chunked_body_ends_the_connection_and_nothing_else(extra: bytes) -> None:
    """As with a length: the response is whole, what is behind it is nobody's."""
    replica = Replica()
    connection = replica.connect()
    got = replica.ask(connection, CHUNKED + b"2\r\n{}\r\n0\r\n\r\n" + extra)
    assert (got.end, got.body) == ("whole", b"{}")
    assert wire_of(connection).closing
    assert replica.connections.idle() is None


def test_stray_bytes_on_an_idle_connection_cut_it() -> None:
    replica = Replica()
    connection = replica.connect()
    replica.ask(connection, counted(b"{}"))
    connection.data_received(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
    assert wire_of(connection).aborted
    connection.connection_lost(None)
    assert replica.connections.idle() is None


def test_a_reset_before_any_byte_is_stale_only_on_a_reused_connection() -> None:
    replica = Replica()
    connection = replica.connect()
    assert replica.ask(connection, counted(b"{}")).end == "whole"
    assert replica.ask(connection, closes=True).end == "stale"
    fresh = replica.ask(replica.connect(), closes=True)
    assert (fresh.end, fresh.fault) == ("fault", Fault.RESET)
    connection = replica.connect()
    replica.ask(connection, counted(b"{}"))
    begun = replica.ask(connection, b"H", closes=True)
    assert (begun.end, begun.fault) == ("fault", Fault.RESET)


def test_an_error_of_the_connection_is_no_end_of_a_body() -> None:
    replica = Replica()
    connection = replica.connect()
    got = replica.ask(connection, b"HTTP/1.1 200 OK\r\n\r\npart")
    connection.connection_lost(ConnectionResetError())
    assert (got.end, got.body, got.fault) == ("fault", b"part", Fault.RESET)


@pytest.mark.parametrize("behind", [b"", b"\r\n\r\n"])
def test_a_head_without_end_is_a_fault(behind: bytes) -> None:
    replica = Replica()
    connection = replica.connect()
    reads = [b"HTTP/1.1 200 OK\r\n", *[b"x: " + b"y" * 1000 + b"\r\n"] * (MAX_HEAD // 1000 + 2), behind]
    got = replica.ask(connection, *filter(None, reads))
    assert (got.end, got.fault) == ("fault", Fault.PROTOCOL)
    assert len(connection._raw) <= MAX_HEAD + 3


@pytest.mark.parametrize("size", [MAX_HEAD, MAX_HEAD + 1])
@pytest.mark.parametrize("before_the_end", range(5))
def test_the_largest_head(size: int, before_the_end: int) -> None:
    start = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nx: "
    head = start + b"y" * (size - len(start)) + b"\r\n\r\n"
    at = len(head) - before_the_end
    replica = Replica()
    got = replica.ask(replica.connect(), *filter(None, (head[:at], head[at:])))
    assert (got.end == "fault") is (size > MAX_HEAD)


@settings(max_examples=200)
@given(st.lists(st.binary(max_size=60) | NEARLY, max_size=8))
def test_noise_never_crashes(reads: list[bytes]) -> None:
    replica = Replica()
    connection = replica.connect()
    got = replica.ask(connection, *filter(None, reads), closes=True)
    assert got.end is not None or not wire_of(connection).closing
    assert not replica.connections.connections
    assert replica.connections.idle() is None


def test_whoever_drops_a_response_hears_no_more() -> None:
    replica = Replica()
    connection = replica.connect()
    got = replica.ask(connection, CHUNKED + b"2\r\n{}\r\n")
    connection.drop()
    assert wire_of(connection).aborted
    connection.data_received(b"2\r\n{}\r\n0\r\n\r\n")
    connection.connection_lost(None)
    assert (got.end, got.body) == (None, b"{}")
    assert not replica.connections.connections and replica.connections.idle() is None


def test_a_paused_connection_reads_again_before_it_is_reused() -> None:
    replica = Replica()
    connection = replica.connect()
    got = Got()
    connection.start(got, b"", b"")
    connection.pause(True)
    connection.pause(True)
    assert not wire_of(connection).reading
    connection.data_received(counted(b"{}"))  # it was on its way
    assert got.end == "whole"
    assert wire_of(connection).reading and replica.connections.idle() is connection


def test_idle_connections_are_used_youngest_first_and_not_for_long() -> None:
    replica = Replica()
    old, young = replica.connect(), replica.connect()
    replica.ask(old, counted(b"{}"))
    replica.now = IDLE_SECONDS / 2
    replica.ask(young, counted(b"{}"))
    assert replica.connections.idle() is young
    replica.ask(young, counted(b"{}"))
    replica.now = IDLE_SECONDS
    replica.connections.prune(replica.now)
    assert wire_of(old).closing and not wire_of(young).closing
    replica.now = 2 * IDLE_SECONDS
    assert replica.connections.idle() is None
    assert wire_of(young).closing


def test_a_closed_pool_keeps_nothing() -> None:
    replica = Replica()
    idle, busy = replica.connect(), replica.connect()
    replica.ask(idle, counted(b"{}"))
    got = replica.ask(busy, b"HTTP/1.1 200 OK\r\n")
    replica.connections.close()
    assert wire_of(idle).closing and not wire_of(busy).closing
    busy.data_received(b"content-length: 2\r\n\r\n{}")
    assert got.end == "whole" and wire_of(busy).closing


@pytest.mark.parametrize(
    "raw",
    [
        b"\x16\x03\x01",
        b"\x000\r\n\r\n",  # nothing is remembered, and this looks like nothing
        b"HTTX",
        b"h",
        b"HTTP/1.1 100 Go on\r\n\r\nhello",
        b"HTTP/1.1 103 X\r\n\r\n\r\nHTTP/1.1 200 OK",  # its status line would go on as a field
    ],
)
def test_what_cannot_become_a_head_is_not_waited_for(raw: bytes) -> None:
    replica = Replica()
    got = replica.ask(replica.connect(), raw)
    assert (got.end, got.fault) == ("fault", Fault.PROTOCOL)


@pytest.mark.parametrize("coding", [b"gzip, chunked", b"identity", b"chunked\r\ntransfer-encoding: chunked", b"x"])
def test_a_coding_that_cannot_be_undone_is_a_fault(coding: bytes) -> None:
    replica = Replica()
    got = replica.ask(replica.connect(), b"HTTP/1.1 200 OK\r\ntransfer-encoding: " + coding + b"\r\n\r\n0\r\n\r\n")
    assert (got.end, got.fault) == ("fault", Fault.PROTOCOL)
