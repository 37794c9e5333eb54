"""ClientConnection as a whole: whatever the client sends and however it reads, the account of bytes is right, nothing
is served while it does not read, and no answer goes out for a request that was not whole."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

from kilocard.gateway import downstream
from kilocard.gateway.downstream import MAX_PIPELINED, ClientConnection
from kilocard.gateway.framing import MAX_ARRIVALS
from kilocard.gateway.outbox import Outbox
from kilocard.spec.model import Limits, Timeouts

_GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
_POST = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nhello"
_CODED = b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"


def _step(kind: int, data: bytes = b"") -> bytes:
    return bytes([kind, len(data)]) + data


SEEDS = [
    _step(0, _GET + _POST) + _step(1) + _step(1),
    _step(0, _POST[:30]) + _step(4) + _step(0, _POST[30:]) + _step(1),
    _step(2) + _step(0, _GET * 9) + _step(3) + _step(1) + _step(1),
    _step(0, _CODED) + _step(0, _GET) + _step(5),
    _step(0, _GET * 9) + _step(6) + _step(1) + _step(0, b"nonsense\r\n\r\n"),
    _step(7) + _step(0, _GET * 9) + _step(0, _GET * 9) + _step(0, _GET * 9) + _step(6),
    _step(0, _GET) + _step(6) + _step(4) + bytes([7, 1]) + _step(4),
]


_NUMBER = re.compile(rb"<(\d+)>")


class _Plane:
    """Requests with a body run until they are told to end; others are answered at once."""

    def __init__(self, soon: list[Any]) -> None:
        self.outbox = Outbox(soon.append)
        self.limits = Limits(body=300, header=400, url=100, buffered=1500, client_idle=10.0, body_rate=10)
        self.timeouts = Timeouts(idle=10.0, total=60.0)
        self.now = 0.0
        self.buffered = 0
        self.notes_peers = self.draining = self.leaving = False
        self.on_answer: list[Any] = []
        self.telemetry = SimpleNamespace(bad_request=lambda error: None)
        self.running: list[tuple[ClientConnection, int]] = []
        self.served = 0

    def clock(self) -> float:
        return self.now

    def connected(self, connection: object) -> bool:
        return True

    def disconnected(self, connection: object) -> None:
        pass

    def new_request_id(self) -> bytes:
        return b"kc-1"

    def serve(self, client: ClientConnection, arrival: Any) -> None:
        assert not client.paused and client.current is None, "served while the client does not read"
        self.served += 1
        if arrival.body:
            client.current = SimpleNamespace(client_gone=lambda: None, client_paused=lambda paused: None)  # type: ignore[assignment]  # what it uses of one
            self.running.append((client, len(arrival.body)))
        else:
            self.answer(client)

    def answer(self, client: ClientConnection) -> None:
        """One runs at a time, so this is the last that was served."""
        client.write_whole(b"HTTP/1.1 200 OK\r\n", b"<%d>" % self.served)
        client.next_request(0.0)


class _Transport:
    def __init__(self) -> None:
        self.reading, self.ended, self.written = True, False, b""
        self.unsent = 0

    def write(self, data: bytes) -> None:
        self.written += data

    def pause_reading(self) -> None:
        assert self.reading
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading
        self.reading = True

    def close(self) -> None:
        self.ended = True

    abort = close

    def is_closing(self) -> bool:
        return self.ended

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def get_extra_info(self, name: str, default: object = None) -> object:
        return default

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        pass


def check(data: bytes) -> None:
    soon: list[Any] = []
    plane, transport = _Plane(soon), _Transport()
    downstream.asyncio = SimpleNamespace(  # type: ignore[assignment]  # no loop runs here
        get_running_loop=lambda: SimpleNamespace(call_soon=soon.append), Protocol=object
    )
    client = ClientConnection(plane)  # type: ignore[arg-type]  # what it uses of one
    client.connection_made(transport)  # type: ignore[arg-type]
    at = 0
    while at + 1 < len(data) and not transport.ended:
        kind, size = data[at] & 7, data[at + 1]
        at += 2
        if kind == 0:
            if transport.reading:
                client.data_received(data[at : at + size]) if size else None
            at += size
        elif kind == 1 and plane.running:
            _end(plane)
        elif kind == 2:  # it reads nothing, or less and less of what was written
            transport.unsent = max(size, 1)
            if not client.paused:
                client.pause_writing()
        elif kind == 3 and client.paused:
            transport.unsent = 0
            client.resume_writing()
        elif kind == 4:
            plane.now += 1.0
            client.check(plane.now)
        elif kind == 5:
            client.eof_received()
        elif kind == 6 and soon:
            soon.pop(0)()
        elif kind == 7:
            plane.draining = not plane.draining
            plane.leaving = plane.draining and size % 2 == 1  # the port is closed by now
        queue, framer = client._queue, client._framer
        assert len(queue) < MAX_PIPELINED + MAX_ARRIVALS
        bodies = sum(len(arrival.body) for arrival in queue) + sum(size for _, size in plane.running)
        if not client._closing and framer.refusal is None:
            assert plane.buffered == bodies + (framer.held if framer.in_message else 0), "the account is wrong"
            if client.current is None and not client.paused:
                assert not queue and (transport.reading or soon), "it waits for nothing"
    if not transport.ended:
        client.send_posted()
        answered = plane.served - len(plane.running)
        assert _NUMBER.findall(transport.written) == [b"%d" % one for one in range(1, answered + 1)], "not in order"
    client.connection_lost(None)
    while plane.running:
        plane.buffered -= plane.running.pop()[1]
    assert plane.buffered == 0, "bytes are left in the account"
    for call in soon:
        call()
    assert plane.buffered == 0


def _end(plane: _Plane) -> None:
    client, size = plane.running.pop()
    plane.buffered -= size
    plane.answer(client)
