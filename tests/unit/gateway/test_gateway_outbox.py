"""The end of a turn: everything goes out once, in its connection's order, and one connection's trouble is its own."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilocard.core.errors import ClientError
from kilocard.dispatch.events import Fault
from kilocard.gateway.client_writer import MAX_POSTED, ClientWriter
from kilocard.gateway.outbox import Outbox
from kilocard.gateway.replica_connections import ReplicaConnections
from kilocard.gateway.upstream import UpstreamConnection

OK = b"HTTP/1.1 200 OK\r\n"


class Wire:
    """A transport that remembers each write."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.closing = self.broken = False

    def write(self, data: bytes) -> None:
        if self.broken:
            raise RuntimeError("the handle is closed")
        assert not self.closing, "written to after its end"
        self.writes.append(data)

    def abort(self) -> None:
        self.closing = True

    close = abort

    def is_closing(self) -> bool:
        return self.closing


class Turn:
    """One turn of an event loop: `end` calls what was left for its end."""

    def __init__(self) -> None:
        self.left: list[Callable[[], None]] = []
        self.outbox = Outbox(self.left.append)
        self.plane = SimpleNamespace(outbox=self.outbox, new_request_id=lambda: b"kc-1")
        self.pool = ReplicaConnections("http://10.0.0.1:80", float, self.outbox)

    def client(self) -> ClientWriter:
        client = ClientWriter(self.plane)  # type: ignore[arg-type]  # what it uses of one
        client.transport = Wire()  # type: ignore[assignment]  # same
        return client

    def replica(self) -> UpstreamConnection:
        replica = UpstreamConnection(self.pool)
        replica.connection_made(Wire())  # type: ignore[arg-type]  # same
        return replica

    def end(self) -> None:
        left, self.left[:] = list(self.left), []
        for call in left:
            call()


class Asker:
    """Who wants the replica's answer: only how it ended."""

    end = ""
    fault: Fault | None = None

    def on_whole(self, head: object, body: bytes) -> None:
        self.end = "whole"

    def on_head(self, head: object, length: int | None) -> None:
        self.end = "head"

    def on_data(self, data: bytes) -> None:
        self.end = "data"

    def on_complete(self) -> None:
        self.end = "whole"

    def on_stale(self) -> None:
        self.end = "stale"

    def on_fault(self, fault: Fault, detail: str) -> None:
        self.end, self.fault = "fault", fault


def writes(of: ClientWriter | UpstreamConnection) -> list[bytes]:
    wire = of.transport
    assert isinstance(wire, Wire)
    return wire.writes


def test_requests_and_answers_of_a_turn_go_out_together_at_its_end() -> None:
    turn = Turn()
    clients, replicas = [turn.client() for _ in range(3)], [turn.replica() for _ in range(3)]
    for client, replica in zip(clients, replicas, strict=True):
        client.write_whole(OK, b"hello")
        replica.start(Asker(), b"POST / HTTP/1.1\r\n\r\n", b"{}")  # type: ignore[arg-type]
    assert len(turn.left) == 1, "one call for all of them"
    assert not any(writes(each) for each in (*clients, *replicas))
    turn.end()
    assert [writes(replica) for replica in replicas] == [[b"POST / HTTP/1.1\r\n\r\n{}"]] * 3
    assert all(len(writes(client)) == 1 and writes(client)[0].endswith(b"\r\n\r\nhello") for client in clients)
    turn.end()
    assert all(len(writes(each)) == 1 for each in (*clients, *replicas)), "and once"


def test_the_next_turn_has_an_end_of_its_own() -> None:
    turn = Turn()
    client = turn.client()
    for number in range(3):
        client.write_whole(OK, b"%d" % number)
        turn.end()
    assert [each[-1:] for each in writes(client)] == [b"0", b"1", b"2"]


what_is_written = st.lists(st.sampled_from(["whole", "large", "head", "piece", "error", "turn"]), max_size=20)


@given(what_is_written)
def test_whatever_is_written_goes_out_in_its_order(kinds: list[str]) -> None:
    turn = Turn()
    client = turn.client()
    for number, kind in enumerate(kinds):
        mark = b"<%d>" % number
        if kind == "whole":
            client.write_whole(OK, mark)
        elif kind == "large":
            client.write_whole(OK, mark + b"x" * MAX_POSTED)
        elif kind == "head":
            client.write_head(OK + b"x-mark: " + mark + b"\r\n", b"transfer-encoding: chunked\r\n")
        elif kind == "piece":
            client.write(mark)
        elif kind == "error":
            client.write_error(ClientError("no"), mark)
        else:
            turn.end()
    turn.end()
    out = b"".join(writes(client))
    places = [out.find(b"<%d>" % number) for number, kind in enumerate(kinds) if kind != "turn"]
    assert places == sorted(places) and -1 not in places
    assert out.count(b"HTTP/1.1 ") == sum(kind in ("whole", "large", "head", "error") for kind in kinds)


def test_what_ended_in_the_meantime_is_not_written_to() -> None:
    turn = Turn()
    client, replica = turn.client(), turn.replica()
    client.write_whole(OK, b"hello")
    replica.start(Asker(), b"POST / HTTP/1.1\r\n\r\n", b"{}")  # type: ignore[arg-type]
    client.abort()
    replica.drop()
    turn.end()
    assert not writes(client) and not writes(replica)


def test_a_connection_that_can_not_be_written_to_silences_no_other(caplog: pytest.LogCaptureFixture) -> None:
    turn = Turn()
    clients = [turn.client() for _ in range(3)]
    for client in clients:
        client.write_whole(OK, b"hello")
    broken = clients[1].transport
    assert isinstance(broken, Wire)
    broken.broken = True
    turn.end()
    assert [len(writes(client)) for client in clients] == [1, 0, 1]
    assert broken.closing and "could not be written" in caplog.text


ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
LATE = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\n\r\n"


def test_what_an_idle_connection_says_before_the_request_is_out_is_no_answer() -> None:
    """Servers say 408 as they close a connection that was idle for too long; it read as the answer to the next
    request, which by then was on its way."""
    turn = Turn()
    replica = turn.replica()
    first, second = Asker(), Asker()
    replica.start(first, b"POST / HTTP/1.1\r\n\r\n", b"{}")  # type: ignore[arg-type]
    turn.end()
    replica.data_received(ANSWER)
    assert first.end == "whole"
    replica.start(second, b"POST / HTTP/1.1\r\n\r\n", b"{}")  # type: ignore[arg-type]
    replica.data_received(LATE)
    turn.end()
    assert second.end == "stale", "it is sent again on a fresh connection"
    assert len(writes(replica)) == 1


def test_a_replica_that_speaks_first_on_a_fresh_connection_is_at_fault() -> None:
    turn = Turn()
    replica, asker = turn.replica(), Asker()
    replica.start(asker, b"POST / HTTP/1.1\r\n\r\n", b"{}")  # type: ignore[arg-type]
    replica.data_received(b"SSH-2.0-OpenSSH_9.2\r\n")
    turn.end()
    assert (asker.end, asker.fault) == ("fault", Fault.PROTOCOL)
    assert not writes(replica)
