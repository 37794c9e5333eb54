"""RequestFramer: nothing but refusals is raised; the same arrivals however cut; a remembered head changes nothing."""

from __future__ import annotations

from typing import NamedTuple

from fuzz.cuts import cut, uncut
from kilocard.gateway.arrival import Arrival
from kilocard.gateway.framing import RequestFramer

_HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
SEEDS = [
    uncut(_HEAD + b"Content-Length: 2\r\n\r\n{}" + _HEAD + b"Content-Length: 3\r\n\r\n{ }"),
    uncut(_HEAD + b"content-length: 2\r\nX-Thing: 1\r\n\r\n{}GET /v1/models?a=b HTTP/1.0\r\n\r\n"),
    uncut(_HEAD + b"Transfer-Encoding: chunked\r\n\r\n2;a=b\r\n{}\r\n0\r\nx: y\r\n\r\n"),
    uncut(_HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n2\r\n{}\r\n0\r\n\r\n"),
    uncut(b"GET http://h/v1/models HTTP/1.1\r\nhost: h\r\nconnection: close, x-a\r\nx-a: b\r\n\r\n"),
    uncut(b"OPTIONS * HTTP/1.1\r\nhost: h\r\nexpect: 100-continue\r\ncontent-length : 5\r\n folded: x\r\n\r\n"),
    uncut(b"GET / HTTP/1.1\r\nhost: h\r\nupgrade: h2c\r\nconnection: upgrade\r\ncontent-length: 4\r\n\r\nabcd"),
    uncut(b"CONNECT a:1 HTTP/1.1\r\nhost: a:1\r\n\r\n"),
    uncut(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
]
_GOOD = b"POST /v1/a HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"


def check(data: bytes) -> None:
    pieces, whole = cut(data)
    together = _read([whole])
    assert _same(_read(pieces), together), "another answer to other cuts"
    one = RequestFramer(2000, 3000, 500)
    head = whole.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
    for before in (_GOOD, _empty(head)):
        one.feed(before)
        if one.refusal is not None or one.in_message or not one.arrivals or not one.arrivals[-1].keep_alive:
            break
        one.arrivals.clear()
    else:
        assert _same(_taken(one, [whole]), together), "what came before has changed the answer"


def _same(one: _Taken, other: _Taken) -> bool:
    """What is behind a chunked body in the same read is not taken: then one has seen less, and nothing else."""
    if one.cut_short or other.cut_short:
        shorter, longer = (one, other) if one.cut_short else (other, one)
        return longer.arrivals[: len(shorter.arrivals)] == shorter.arrivals
    return one == other


def _empty(head: bytes) -> bytes:
    """A whole request with nearly this head: all about it is remembered."""
    start = head.lower().find(b"content-length: ")
    if start < 0:
        return head
    start += len(b"content-length: ")
    end = head.find(b"\r\n", start)
    return head[:start] + b"1" + head[end:] + b"x"


class _Taken(NamedTuple):
    """Arrivals up to the last one that the connection would serve, and how it ends."""

    arrivals: list[tuple[object, ...]]
    refused: bool
    cut_short: bool = False


def _read(pieces: list[bytes]) -> _Taken:
    return _taken(RequestFramer(2000, 3000, 500), pieces)


def _taken(one: RequestFramer, pieces: list[bytes]) -> _Taken:
    arrivals: list[Arrival] = []
    for piece in pieces:
        one.feed(piece)
        arrivals += one.arrivals
        one.arrivals.clear()
        while one.pent:
            one.feed(b"")
            arrivals += one.arrivals
            one.arrivals.clear()
        assert one.held <= 2000 + 3000 + len(piece)
    for number, arrival in enumerate(arrivals):
        if not arrival.keep_alive:
            return _Taken([_plain(each) for each in arrivals[: number + 1]], False, arrival.head.chunked)
    return _Taken([_plain(each) for each in arrivals], one.refusal is not None)


def _plain(arrival: Arrival) -> tuple[object, ...]:
    """Without the length, which a remembered head has of an earlier request."""
    head = arrival.head._replace(content_length=None)
    return (arrival.method, arrival.path, arrival.query, head, arrival.body, arrival.version)
