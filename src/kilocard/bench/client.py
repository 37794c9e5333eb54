"""The streaming load client: asks in, records out, on one thread.

    client = Client(Target("http://127.0.0.1:8000"))
    record = client.ask(Ask(body, asked_input=100, asked_output=16))     # one, and wait
    driven = drive_closed(client, make_ask, concurrency=64, seconds=30)  # kilocard.bench.drive

HTTP/1.1 with keep-alive. HTTP/2 is not spoken, so there is no GOAWAY; its likeness is an idle connection that the
server closes. Such a connection is thrown away, and where the close crossed with a request, that request is sent once
more on a new connection (`retried` counts them): neither is a failure.
"""

from __future__ import annotations

import math
import ssl
from collections import deque

from kilocard.bench import failures
from kilocard.bench.ask import Ask, Target
from kilocard.bench.connection import Connection
from kilocard.bench.endpoint import MOST_SOCKETS, SPARE_FILES, Address, Endpoint, file_limit
from kilocard.bench.exchange import Done, Exchange, broken, timed_out
from kilocard.bench.loop import Loop
from kilocard.bench.record import CUT_OFF, RequestRecord
from kilocard.bench.watch import Watch

#: an idle connection is not used again after so long: engines close theirs after 5 s
IDLE_SECONDS = 3.0
#: seconds between two looks for requests that are over their time
SWEEP_S = 0.1


class Client:
    """For one thread, and not inside another event loop. Close it, or use it as a context manager.

    `connect_timeout_s`: TCP and TLS. `timeout_s`: one request from its sending to its last byte. `started_ns`
    (time.monotonic_ns()) is the zero of all times, default now; a sampler beside it can use the same.
    Raises UsageError for a URL that is none, UpstreamError for a host that has no address.
    """

    def __init__(
        self,
        target: Target,
        *,
        connect_timeout_s: float = 10.0,
        timeout_s: float = 600.0,
        max_sockets: int = MOST_SOCKETS,
        started_ns: int | None = None,
    ) -> None:
        self._endpoint = Endpoint(target)
        self._connect_timeout_s = connect_timeout_s
        self._timeout_s = timeout_s
        self.max_sockets = min(max_sockets, file_limit() - SPARE_FILES)
        self.loop = Loop(started_ns)
        self.watch = Watch()
        self._idle: deque[Connection] = deque()
        self._sockets: set[Connection] = set()
        self._busy: dict[Connection, Exchange] = {}
        self._next_sweep_s = 0.0
        #: requests sent again since a reused connection ended before a byte of the answer
        self.retried = 0
        #: idle connections that the server ended
        self.idle_closed = 0
        #: what the server said, an example for each error
        self.examples: dict[str, str] = {}

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def in_flight(self) -> int:
        return len(self._busy)

    @property
    def arrivals(self) -> int:
        """Token arrivals since the watch began."""
        return self.watch.arrivals

    @property
    def oldest_s(self) -> float:
        """When the oldest request in flight was intended; infinity: none is."""
        return min((exchange.record.intended_s for exchange in self._busy.values()), default=math.inf)

    def now(self) -> float:
        return self.loop.now()

    def ask(self, ask: Ask) -> RequestRecord:
        """Send one and wait for its end. Failures stand in the record."""
        done: list[RequestRecord] = []
        self.start(ask, self.now(), done.append)
        while not done:
            self.turn(math.inf)
        return done[0]

    def turn(self, until: float) -> None:
        """Let the loop do what is due, no longer than `until`."""
        self.loop.turn(min(until, self._next_sweep_s))
        now = self.now()
        if now >= self._next_sweep_s:
            self._next_sweep_s = now + SWEEP_S
            self._sweep(now)

    def start(self, ask: Ask, intended_s: float, on_done: Done) -> None:
        """Send it now. `on_done` is called with its record, exactly once."""
        now = self.now()
        record = RequestRecord(intended_s, now, ask.asked_input, ask.asked_output, session=ask.session, turn=ask.turn)
        exchange = Exchange(ask, record, now, on_done)
        connection = self._take_idle(now)
        if connection is not None:
            self._send(exchange, connection)
        else:
            self._connect(exchange)
        if ask.cancel_after_s is not None:
            self.loop.at(now + ask.cancel_after_s, lambda: self._end(exchange, failures.LEFT))

    def cut_off(self, error: str = CUT_OFF) -> None:
        """End everything that is in flight: their records say so."""
        for exchange in list(self._busy.values()):
            self._end(exchange, error)

    def close(self) -> None:
        self.cut_off()
        for connection in list(self._sockets):
            self._drop(connection)
        self.loop.close()

    # connections

    def _take_idle(self, now: float) -> Connection | None:
        """The one used last: the others may grow old."""
        while self._idle:
            connection = self._idle.pop()
            if not connection.closed and now - connection.idle_since < IDLE_SECONDS:
                return connection
            self._drop(connection)
        return None

    def _connect(self, exchange: Exchange) -> None:
        if len(self._sockets) >= self.max_sockets and self._idle:
            self._drop(self._idle.popleft())
        if len(self._sockets) >= self.max_sockets:
            self.watch.unsent += 1
            self._fail(exchange, failures.NO_SOCKET, f"{self.max_sockets} sockets")
            return
        address = self._endpoint.address()
        try:
            connection = Connection(self.loop, address, self, self._endpoint.tls, self._endpoint.host)
        except OSError as error:
            self._connect_failed(exchange, address, error)
            return
        self._sockets.add(connection)
        exchange.connection = connection
        self._busy[connection] = exchange

    def _connect_failed(self, exchange: Exchange, address: Address, error: OSError) -> None:
        exchange.tries += 1
        self._endpoint.failed(address)
        if isinstance(error, ssl.SSLError):
            self._fail(exchange, failures.TLS_FAILED, str(error))
        elif exchange.tries < self._endpoint.count:
            self._connect(exchange)
        else:
            refused = isinstance(error, ConnectionRefusedError)
            self._fail(exchange, failures.CONNECT_REFUSED if refused else failures.CONNECT_FAILED, str(error))

    def _send(self, exchange: Exchange, connection: Connection) -> None:
        exchange.connection = connection
        self._busy[connection] = exchange
        connection.used += 1
        connection.send(self._endpoint.head(len(exchange.ask.body)) + exchange.ask.body)

    def _drop(self, connection: Connection) -> None:
        connection.close()
        self._sockets.discard(connection)

    # what connections tell

    def connected(self, connection: Connection) -> None:
        exchange = self._busy.get(connection)
        if exchange is not None:
            self._send(exchange, connection)

    def received(self, connection: Connection, data: bytes, stamp: float, exact: bool, floor: float) -> None:
        exchange = self._busy.get(connection)
        if exchange is None:  # bytes that nobody asked for
            self._forget_idle(connection)
            return
        answer = exchange.answer
        before = answer.arrivals
        answer.feed(data, stamp)
        if answer.arrivals > before:
            blur = max(0.0, stamp - floor)
            self.watch.arrived(answer.arrivals - before, 0.0 if exact else blur, blur)
        if answer.complete:
            self._finish(exchange)

    def lost(self, connection: Connection, error: OSError | None, stamp: float) -> None:
        exchange = self._busy.get(connection)
        if exchange is None:
            self.idle_closed += 1
            self._forget_idle(connection)
            return
        if not connection.open:
            self._release(exchange)
            gone = error or ConnectionResetError("closed in the TLS handshake")
            self._connect_failed(exchange, connection.address, gone)
            return
        answer = exchange.answer
        if error is None and answer.eof(stamp):
            self._finish(exchange)
        elif not answer.begun and connection.used > 1 and not exchange.retried:
            self.retried += 1
            exchange.retried = True
            self._release(exchange)
            self._connect(exchange)
        else:
            self._fail(exchange, broken(answer, error), str(error or ""))

    def _forget_idle(self, connection: Connection) -> None:
        if connection in self._idle:
            self._idle.remove(connection)
        self._drop(connection)

    # ends of exchanges

    def _finish(self, exchange: Exchange) -> None:
        """The answer is whole."""
        connection, record = exchange.connection, exchange.record
        assert connection is not None
        del self._busy[connection]
        exchange.connection = None
        if connection.sent:
            record.sent_s = connection.sent_s
        if exchange.answer.keep_alive and connection.sent:
            connection.idle_since = self.now()
            self._idle.append(connection)
        else:
            self._drop(connection)
        self._report(exchange)

    def _release(self, exchange: Exchange) -> None:
        """Its connection is of no more use."""
        connection, exchange.connection = exchange.connection, None
        if connection is not None:
            del self._busy[connection]
            if connection.used and connection.sent:
                exchange.record.sent_s = connection.sent_s
            self._drop(connection)

    def _end(self, exchange: Exchange, error: str) -> None:
        """Unless it has ended already."""
        if exchange.connection is not None:
            self._fail(exchange, error, "")

    def _fail(self, exchange: Exchange, error: str, message: str) -> None:
        self._release(exchange)
        exchange.answer.abandon()
        if exchange.record.error is None:
            exchange.record.error, exchange.answer.message = error, message
        self._report(exchange)

    def _report(self, exchange: Exchange) -> None:
        error, message = exchange.record.error, exchange.answer.message
        if error is not None and message and error not in self.examples:
            self.examples[error] = self._endpoint.masked(message)
        exchange.on_done(exchange.record)

    def _sweep(self, now: float) -> None:
        for connection, exchange in list(self._busy.items()):
            age = now - exchange.started_s
            if not connection.open and age > self._connect_timeout_s:
                self._end(exchange, failures.CONNECT_TIMEOUT)
            elif age > self._timeout_s:
                self._end(exchange, timed_out(exchange.answer))
