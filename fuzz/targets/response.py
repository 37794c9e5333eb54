"""UpstreamConnection: the same response however cut, and a connection in doubt is not used again."""

from __future__ import annotations

from fuzz.cuts import cut, uncut
from kilocard.dispatch.events import Fault
from kilocard.gateway.heads import ResponseHead
from kilocard.gateway.outbox import Outbox
from kilocard.gateway.replica_connections import ReplicaConnections
from kilocard.gateway.upstream import UpstreamConnection

_OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
_CODED = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
SEEDS = [
    uncut(_OK + b"content-length: 2\r\n\r\n{}"),
    uncut(_OK + b"Content-Length: 2\r\n\r\n{}{}"),
    uncut(_CODED + b"5\r\nhello\r\n3;x=y\r\nabc\r\n0\r\nx: y\r\n\r\n"),
    uncut(_CODED + b'10\r\ndata: {"a": 12}\n\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n'),
    uncut(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\nstray"),
    uncut(_OK + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"),
    uncut(b"HTTP/1.0 200 OK\r\nconnection: keep-alive\r\n\r\nuntil the end"),
    uncut(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n"),
]


class _Transport:
    def __init__(self) -> None:
        self.closing = False

    def write(self, data: bytes) -> None: ...
    def get_write_buffer_size(self) -> int:
        return 0

    def close(self) -> None:
        self.closing = True

    abort = close

    def is_closing(self) -> bool:
        return self.closing


class _Got:
    def __init__(self) -> None:
        self.head: ResponseHead | None = None
        self.body = b""
        self.end = ""

    def on_head(self, head: ResponseHead, length: int | None) -> None:
        assert self.head is None and not self.end
        self.head = head

    def on_whole(self, head: ResponseHead, body: bytes) -> None:
        self.on_head(head, len(body))
        self.body = body
        self.on_complete()

    def on_data(self, data: bytes) -> None:
        assert self.head is not None and not self.end and data
        self.body += data

    def on_complete(self) -> None:
        assert self.head is not None and not self.end
        self.end = "whole"

    def on_fault(self, fault: Fault, detail: str) -> None:
        assert not self.end
        self.end = "fault"

    def on_stale(self) -> None:
        raise AssertionError("it has not been used before")


def check(data: bytes) -> None:
    pieces, whole = cut(data)
    pool = ReplicaConnections("http://10.0.0.1:80", float, Outbox(lambda send: send()))
    one, kept = _answer(pool, [whole])
    for other, other_kept in (_answer(pool, pieces), _answer(pool, [whole])):  # the second with the head remembered
        assert (other.head, other.end) == (one.head, one.end), "another answer to other cuts"
        if one.end == "whole":
            assert other.body == one.body
            # More than the answer came: how much of that is seen in time depends on the cuts.
            assert not (kept and other_kept) or len(whole) == 0 or other.body == one.body
        else:
            assert one.body.startswith(other.body) or other.body.startswith(one.body)


def _answer(pool: ReplicaConnections, pieces: list[bytes]) -> tuple[_Got, bool]:
    transport, got = _Transport(), _Got()
    connection = UpstreamConnection(pool)
    connection.connection_made(transport)  # type: ignore[arg-type]  # what it uses of one
    connection.start(got, b"POST / HTTP/1.1\r\n\r\n", b"")
    for piece in pieces:
        if transport.closing:
            break
        connection.data_received(piece)
    kept = connection in pool._idle and not transport.closing
    connection.connection_lost(None)
    assert got.end, "neither whole nor failed"
    assert not pool._idle and not pool.connections
    return got, kept
