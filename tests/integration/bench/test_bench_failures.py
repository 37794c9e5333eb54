"""What a server can do wrong, each by its name; and what looks like a failure and is none."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
import trustme
from benchmarks.bench_client.timed_server import TimedServer, timed_body

from kilocard.bench import failures
from kilocard.bench.ask import Ask, Target
from kilocard.bench.client import Client
from kilocard.bench.drive import drive_closed, drive_open
from kilocard.bench.record import CUT_OFF
from kilocard.core.errors import UpstreamError, UsageError


@pytest.fixture(scope="module")
def server() -> Iterator[TimedServer]:
    with TimedServer() as running:
        yield running


def ask(fault: str | None = None, *, cancel_after_s: float | None = None, at_s: float = 0.0, **script: Any) -> Ask:
    given: dict[str, Any] = {"id": "x", "chunks": 4, "first_s": 0.02, "gap_s": 0.01, **script}
    return Ask(timed_body(fault=fault, **given), 1, 4, cancel_after_s=cancel_after_s, at_s=at_s)


@pytest.mark.parametrize(
    ("fault", "error", "gaps"),
    [
        ("close_before", failures.CLOSED_BEFORE, 0),
        ("reset_before", failures.RESET_BEFORE, 0),
        ("status_429", "refused: 429", 0),
        ("status_503", "refused: 503", 0),
        ("close_in_stream", failures.TRUNCATED, 1),
        ("reset_in_stream", failures.RESET_IN_STREAM, 1),
        ("error_event", "error event: 500", 1),
        ("no_done", failures.NO_DONE, 1),
        ("silent", failures.TIMEOUT_BEFORE, 0),
        ("silent_head", failures.TIMEOUT_NO_TOKEN, 0),
        ("close_after", None, 3),
    ],
)
def test_each_fault_has_its_name(server: TimedServer, fault: str, error: str | None, gaps: int) -> None:
    with Client(Target(server.url), timeout_s=1.5) as client:
        record = client.ask(ask(fault))
        assert (record.error, len(record.gaps_s)) == (error, gaps)
        assert client.ask(ask()).error is None  # and the client is fit for the next one


def test_a_stream_that_stops_is_timed_out(server: TimedServer) -> None:
    with Client(Target(server.url), timeout_s=1.5) as client:
        record = client.ask(ask(chunks=3, gap_s=1.0))
    assert record.error == failures.TIMEOUT_IN_STREAM
    assert record.first_s is not None and record.done_s is None


def test_what_the_server_said_is_kept_once_and_without_the_key(server: TimedServer) -> None:
    with Client(Target(server.url, headers=(("Authorization", "Bearer told"),))) as client:
        for _ in range(2):
            client.ask(ask("status_429"))
        assert client.examples == {"refused: 429": "*** to"}


def test_nobody_listens() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening: nobody else gets the port
        port = taken.getsockname()[1]
        with Client(Target(f"http://127.0.0.1:{port}")) as client:
            record = client.ask(ask())
    assert record.error == failures.CONNECT_REFUSED


def test_connections_take_turns_among_the_addresses_that_answer(
    server: TimedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name with three: at one of them nobody listens."""
    with TimedServer() as other, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        ports = [server.port, taken.getsockname()[1], other.port]
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)) for port in ports]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        with Client(Target("http://many.invalid")) as client:
            driven = drive_closed(client, lambda: ask(id="turns"), 6, requests=6)
        monkeypatch.undo()
        assert [r.error for r in driven.records] == [None] * 6
        assert "turns" in server.log() and "turns" in other.log()


def test_a_server_that_takes_no_connections_is_timed_out() -> None:
    """A full backlog: the kernel answers nothing."""
    with socket.socket() as full, closing(socket.socket()) as first, closing(socket.socket()) as second:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for taker in (first, second):
            taker.setblocking(False)
            taker.connect_ex(full.getsockname())
        with Client(Target(f"http://127.0.0.1:{full.getsockname()[1]}"), connect_timeout_s=0.3) as client:
            assert client.ask(ask()).error == failures.CONNECT_TIMEOUT


def test_a_url_that_leads_nowhere() -> None:
    with pytest.raises(UsageError):
        Client(Target("127.0.0.1:80"))
    with pytest.raises(UpstreamError, match="no address"):
        Client(Target("http://nowhere.invalid"))


def test_gw_24_a_connection_that_the_server_ends_between_requests_is_no_failure(server: TimedServer) -> None:
    """As HTTP/2's GOAWAY with NO_ERROR: what was not begun is sent again on a new connection, once, and counted."""
    with Client(Target(server.url)) as client:
        driven = drive_closed(client, lambda: ask("drop_after"), 4, requests=20)
    assert [r.error for r in driven.records] == [None] * 20
    assert driven.retried == 16  # all but the first on each connection


def test_gw_24_a_new_connection_that_is_closed_is_a_failure(server: TimedServer) -> None:
    with Client(Target(server.url)) as client:
        assert client.ask(ask()).error is None
        assert client.ask(ask("close_before")).error == failures.CLOSED_BEFORE  # sent twice, closed twice
        assert client.retried == 1


def test_what_is_in_flight_at_the_end_is_kept_with_what_was_seen_of_it(server: TimedServer) -> None:
    with Client(Target(server.url)) as client:
        driven = drive_closed(client, lambda: ask(chunks=300), 5, seconds=1.0)
    assert [r.error for r in driven.records] == [CUT_OFF] * 5
    assert all(r.first_s is not None and r.last_s is not None and len(r.gaps_s) > 5 for r in driven.records)


def test_a_client_that_leaves(server: TimedServer) -> None:
    with Client(Target(server.url)) as client:
        record = client.ask(ask(chunks=200, cancel_after_s=0.5))
    assert record.error == failures.LEFT
    assert 0 < len(record.gaps_s) < 100


def test_too_few_sockets_are_said_and_counted(server: TimedServer) -> None:
    with Client(Target(server.url), max_sockets=3) as client:
        with pytest.raises(UsageError):
            drive_closed(client, ask, 4, seconds=1)
        driven = drive_open(client, [ask(first_s=0.5) for _ in range(5)])
    errors = sorted(r.error or "" for r in driven.records)
    assert errors == ["", "", "", failures.NO_SOCKET, failures.NO_SOCKET]
    assert driven.health.limited == "2 requests could not be sent: all of the client's sockets were in use"


@contextmanager
def tls_front(server: TimedServer, authority: trustme.CA) -> Iterator[int]:
    """TLS before the timed server, for one connection: a thread in each direction."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        plain, _ = listener.accept()
        with plain, socket.create_connection(("127.0.0.1", server.port)) as back:
            try:
                outside = context.wrap_socket(plain, server_side=True)
            except OSError:
                return
            with outside:
                forward = threading.Thread(target=pump, args=(outside, back))
                forward.start()
                pump(back, outside)
                forward.join(10)

    def pump(source: socket.socket, to: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                to.sendall(data)
            to.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    thread = threading.Thread(target=serve)
    thread.start()
    yield listener.getsockname()[1]
    thread.join(10)
    listener.close()


def test_tls_with_a_certificate_that_is_checked(server: TimedServer) -> None:
    authority = trustme.CA()
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    with tls_front(server, authority) as port, Client(Target(f"https://localhost:{port}", tls=trusting)) as client:
        records = [client.ask(ask()) for _ in range(3)]
        assert [r.error for r in records] == [None] * 3
        assert all(len(r.gaps_s) == 3 for r in records)


def test_a_certificate_that_nobody_vouches_for_is_refused(server: TimedServer) -> None:
    with tls_front(server, trustme.CA()) as port, Client(Target(f"https://localhost:{port}")) as client:
        assert client.ask(ask()).error == failures.TLS_FAILED
        assert "certificate" in client.examples[failures.TLS_FAILED]
