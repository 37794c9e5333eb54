"""One client connection: framing in, order kept, responses out, nothing unbounded."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

from kilocard.core.errors import CapacityError, KilocardError, RequestTimeout
from kilocard.gateway.arrival import Arrival
from kilocard.gateway.client_writer import ClientWriter
from kilocard.gateway.dead_peers import hung_up
from kilocard.gateway.framing import RequestFramer
from kilocard.gateway.local_answer import turned_away
from kilocard.gateway.pace import Pace
from kilocard.wire.failure import error_body

if TYPE_CHECKING:
    from kilocard.gateway.exchange import Exchange
    from kilocard.gateway.plane import Plane
    from kilocard.spec.model import Limits

#: requests of one connection that may wait behind the running one (HTTP pipelining)
MAX_PIPELINED: Final = 16
#: how long and how much a refused client may go on sending before the connection is cut
LINGER_SECONDS = 5.0
LINGER_BYTES = 64 * 1024 * 1024
_PLAIN_ID: Final = frozenset(range(0x21, 0x7F))


class ClientConnection(ClientWriter):
    """Server side of one connection. Requests are answered in their order, one exchange at a time."""

    __slots__ = (
        "_closing", "_framer", "_in_turn", "_lingering", "_pace", "_partial", "_queue", "_reading_paused", "_unsent",
        "current", "paused", "peer", "since",
    )  # fmt: skip

    def __init__(self, plane: Plane) -> None:
        super().__init__(plane)
        self.paused = False  # the client does not read what we write
        self.since = plane.clock()  # start of the head, last byte of the body, or start of idleness
        self._framer = RequestFramer(plane.limits.header, plane.limits.body, plane.limits.url)
        self._partial = 0  # bytes that the framer holds, as far as they are in the plane's account
        self._pace = Pace()
        self._queue: deque[Arrival] = deque()
        self.current: Exchange | None = None
        #: address and port of the client, where somebody wants to know (plane.notes_peers)
        self.peer: tuple[str, int] | None = None
        self._closing = False
        self._in_turn = False
        self._reading_paused = False
        self._lingering = 0  # bytes still to be thrown away; 0: not lingering
        self._unsent = 0  # bytes that the client had not taken at the last look

    def bound(self, limits: Limits) -> None:
        """The cluster file has other limits now."""
        self._framer.bound(limits.header, limits.body, limits.url)

    # -- asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]  # a TCP transport reads and writes
        if self.plane.notes_peers:
            self.peer = transport.get_extra_info("peername")
        if not self.plane.connected(self):
            self._give_up(CapacityError("Too many connections.", code="too_many_connections"))

    def data_received(self, data: bytes) -> None:
        if self._closing:
            if self._lingering:
                self._lingering -= len(data)
                if self._lingering <= 0:
                    self.transport.abort()
            return
        framer = self._framer
        began = not framer.in_message
        framer.feed(data)
        arrivals = framer.arrivals
        if arrivals:
            framer.arrivals = []
            if len(arrivals) == 1 and self.current is None and not self._queue and not self.paused:
                self.plane.buffered += len(arrivals[0].body) - self._partial
                self._partial = 0
                self._serve(arrivals[0])
            else:
                self._take(arrivals)
        if framer.refusal is not None:
            if self.current is None and not self._queue and not self._closing:
                self._give_up(framer.refusal)
        elif framer.in_message:
            self._incomplete(framer, began or bool(arrivals))

    def _take(self, arrivals: list[Arrival]) -> None:
        """Several requests, or one behind others: they wait for their turn."""
        plane = self.plane
        plane.buffered += sum(len(arrival.body) for arrival in arrivals) - self._partial
        self._partial = 0
        self._queue.extend(arrivals)
        self._go_on()

    def _go_on(self) -> None:
        """Serve what waits, until a request runs, or the client does not read what it has got."""
        framer = self._framer
        self._in_turn = True
        while not self._closing and self.current is None:
            if not self.keep_alive:
                self._close()
            elif self.paused or not self._queue:
                break
            else:
                self._serve(self._queue.popleft())
        self._in_turn = False
        if self._closing:
            return
        full = framer.pent or len(self._queue) >= MAX_PIPELINED
        if full != self._reading_paused:
            self._reading_paused = full
            if full:
                self.transport.pause_reading()
            else:
                self.transport.resume_reading()
        if self.current is None and not self._queue and not self.paused:
            if framer.refusal is not None:
                self._give_up(framer.refusal)
            elif framer.pent:  # a turn for others first
                asyncio.get_running_loop().call_soon(self._take_apart)

    def _take_apart(self) -> None:
        """The next ones of very many requests that came together."""
        if self._framer.pent and not self._queue and not self._closing:
            self.data_received(b"")

    def _incomplete(self, framer: RequestFramer, began: bool) -> None:
        """Part of a request is here: keep the account of its bytes and the time."""
        plane = self.plane
        plane.buffered += framer.held - self._partial
        self._partial = framer.held
        if plane.buffered > plane.limits.buffered:
            framer.refusal = CapacityError("The gateway's request buffers are full.", code="buffers_full")
            if self.current is None and not self._queue:
                self._give_up(framer.refusal)
            return
        if began or not framer.in_head:
            self.since = plane.clock()
        if framer.in_head:
            self._pace.running = False
        elif began or not self._pace.running:
            self._pace.begin(self.since)
        if framer.expects_continue and self.current is None and not self._queue:
            self._let_continue()

    def _let_continue(self) -> None:
        self._framer.expects_continue = False
        self.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def eof_received(self) -> bool:
        """Clients of an inference API don't half-close: the end of their side means that they are gone."""
        if self.current is not None:
            self.transport.abort()
        else:
            self.send_posted()  # answers of our own are whole already
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        self.give_back()
        self._framer.close()
        self.plane.disconnected(self)
        self.plane.buffered -= self._partial + sum(len(arrival.body) for arrival in self._queue)
        self._partial = 0
        self._queue.clear()
        current, self.current = self.current, None
        if current is not None:
            current.client_gone()

    def pause_writing(self) -> None:
        self.paused = True
        self.since = self.plane.clock()
        self._unsent = self.transport.get_write_buffer_size()
        if self.current is not None:
            self.current.client_paused(True)

    def resume_writing(self) -> None:
        self.paused = False
        if self.current is not None:
            self.current.client_paused(False)
        elif self._queue or self._framer.pent or self._framer.refusal is not None:
            self._go_on()

    # -- one request after the other

    def _serve(self, arrival: Arrival) -> None:
        self.can_chunk = arrival.version == "1.1"
        self.keep_alive = arrival.keep_alive and not self.plane.draining
        given = arrival.head.request_id or b""
        self.request_id = given if len(given) <= 128 and _PLAIN_ID.issuperset(given) else b""
        self.headers = b""
        self.plane.serve(self, arrival)

    def next_request(self, now: float) -> None:
        """The response is written: the connection is free."""
        self.current = None
        self.since = now
        if self.keep_alive and not self._queue and self._framer.refusal is None:
            return  # the usual case: it waits for what the client asks next
        if not self._in_turn:  # else it is an answer that came at once
            self._go_on()

    # -- the end

    @property
    def receiving(self) -> bool:
        """Part of a request is here, and its client has not been told that it will not be answered."""
        return self._framer.in_message and not self._closing

    def takes(self) -> bool:
        """Whether the client has taken something since the last look, of what had been written then."""
        before, self._unsent = self._unsent, self.transport.get_write_buffer_size()
        return self._unsent < before

    def check(self, now: float) -> None:
        """Called about once a second: whoever does nothing for too long makes room."""
        limits = self.plane.limits
        if self.takes():  # slow, but it reads
            if self.current is not None:
                if self.paused:
                    self.current.last_at = now  # its replica can say nothing until then
            elif not (self._lingering or self._framer.in_message):
                self.since = now
        waited = now - self.since
        if self._closing:
            if waited > (LINGER_SECONDS if self._lingering else self.plane.timeouts.idle):
                self.transport.abort()
        elif self.current is not None:  # the exchange keeps its own time; a next request's begins when it has ended
            self._pace.begin(now, self._framer.body_bytes)
            if self._reading_paused and hung_up(self.transport):  # else we would read of it
                self.transport.abort()
        elif self.paused or (self._unsent and not self._framer.in_message):
            if waited > self.plane.timeouts.idle:
                self.transport.abort()
        elif self._framer.in_message:
            framer = self._framer
            if framer.expects_continue:  # it came behind a request that ran
                self._let_continue()
            elif waited > limits.client_idle:
                self._give_up(RequestTimeout(f"The request was not complete after {limits.client_idle:g} s."))
            elif not framer.in_head and self._pace.too_slow(now, framer.body_bytes, limits, self.plane.timeouts.total):
                self._give_up(RequestTimeout("The body comes too slowly (gateway.limits.body_rate)."))
        elif waited > limits.keep_alive or self.plane.leaving:
            self._close()

    def _close(self) -> None:
        self.send_posted()
        self._closing = True
        self.since = self.plane.clock()
        self.transport.close()

    def _give_up(self, error: KilocardError) -> None:
        """Answer with an error, then throw away what the client still sends, so that it can read the answer."""
        self.keep_alive = False
        self.request_id = self.headers = b""  # the last request's, which has its answer
        self.write_error(error, error_body(error))
        turned_away(self.plane, self, error)
        self.plane.buffered -= self._partial
        self._partial = 0
        self._closing = True
        self._lingering = LINGER_BYTES
        self.since = self.plane.clock()
        if self.transport.can_write_eof():
            self.transport.write_eof()
