"""A second attempt of one request, on another replica, until it has content or is cut.

It keeps what its replica says, at most what an exchange would gather. With the first content it wins: the exchange
takes its connection over and hears everything from the start, as if it had been there. Until then the client sees
nothing of it, and its failure changes nothing. When the first attempt fails the exchange takes it over at once, with
what has come so far: there is never a rival of nobody.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kilocard.core.errors import CapacityError, UpstreamError
from kilocard.dispatch.events import Failed, Fault, HedgeFailed, HedgeWon
from kilocard.gateway.gathering import EARLY_ERROR, MAX_GATHERED, RETRYABLE, unfit, unfit_stream
from kilocard.gateway.phase import WAITING
from kilocard.gateway.poison import suspected
from kilocard.wire.relay import EventRelay

if TYPE_CHECKING:
    from kilocard.dispatch.instructions import Send
    from kilocard.gateway.exchange import Exchange
    from kilocard.gateway.heads import ResponseHead
    from kilocard.gateway.target import Target
    from kilocard.gateway.upstream import UpstreamConnection


class Rival:
    """Implements receiver.Receiver."""

    __slots__ = (
        "_exchange", "_gathered", "_head", "_length", "_relay", "_size", "_task", "connection", "send", "sent_at",
        "target",
    )  # fmt: skip

    def __init__(self, exchange: Exchange, send: Send, target: Target, now: float) -> None:
        self._exchange = exchange
        self.send = send
        self.target = target
        self.sent_at = now
        self.connection: UpstreamConnection | None = None
        self._task: asyncio.Task[None] | None = None
        self._head: ResponseHead | None = None
        self._length: int | None = None
        #: tells where content begins, in a stream
        self._relay: EventRelay | None = None
        self._gathered: list[bytes] = []
        self._size = 0
        connection = target.connections.idle()
        if connection is None:
            self._open()
        else:
            self._start(connection)

    def cut(self) -> None:
        """It has lost: the engine stops at once."""
        if (trail := self._exchange.trail) is not None:
            trail.second_over(self._exchange.plane.clock())
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.drop()

    # -- towards the replica

    def _open(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        try:
            connection = await self.target.connections.open(self._exchange.plane.timeouts.connect)
        except UpstreamError as error:
            self._task = None
            self._fail(Fault.CONNECT, None, error.message)
            return
        except CapacityError as error:  # it is we who can't go on
            self._task = None
            self._fail(Fault.TOTAL, None, error.message)
            return
        self._task = None
        self._start(connection)

    def _start(self, connection: UpstreamConnection) -> None:
        exchange, trail = self._exchange, self._exchange.trail
        self.connection = connection
        upstream_id = b"%b-%d" % (exchange.request_id, self.send.attempt)
        if trail is None:
            head, body = exchange.inbound.for_replica(self.target, upstream_id)
        else:
            head, body = trail.of_second(exchange.inbound, self.target, upstream_id)
        connection.start(self, head, body)

    # -- receiver.Receiver

    def on_head(self, head: ResponseHead, length: int | None) -> None:
        self._head = head
        self._length = length
        if head.stream and not head.encoded:
            self._relay = EventRelay(self._exchange.inbound.hide_usage, head.until_close(length))

    def on_data(self, data: bytes) -> None:
        self._gathered.append(data)
        self._size += len(data)
        head, relay = self._head, self._relay
        assert head is not None
        if relay is not None:
            relay.feed(data)
            if relay.content:
                self._win()
            elif relay.error:
                self._fail(*EARLY_ERROR)
        elif head.stream:
            self._win()
        elif self._size > MAX_GATHERED:
            if head.status in RETRYABLE:
                self._fail(Fault.STATUS, head.status, f"the replica answered {head.status} with more than 1 MiB")
            else:
                self._win()

    def on_whole(self, head: ResponseHead, body: bytes) -> None:
        self.connection = None
        failure = unfit(head, len(body), body)
        if failure is None and head.stream and not head.encoded:
            relay = EventRelay(self._exchange.inbound.hide_usage)
            relay.feed(body)
            relay.finish()
            failure = unfit_stream(relay)
        if failure is not None:
            self._fail(*failure)
            return
        self._take_over()
        self._exchange.on_whole(head, body)

    def on_complete(self) -> None:
        self.connection = None
        head = self._head
        assert head is not None
        relay = self._relay
        if relay is not None:
            relay.finish()  # an event without the blank line behind it is read as well
            failure = unfit_stream(relay)
        else:
            failure = unfit(head, self._length, b"".join(self._gathered))
        if failure is not None:
            self._fail(*failure)
            return
        exchange = self._exchange
        self._win()
        if exchange.runs:
            exchange.on_complete()

    def on_fault(self, fault: Fault, detail: str) -> None:
        self.connection = None
        self._fail(fault, None, detail)

    def on_stale(self) -> None:
        self.connection = None
        self._exchange.plane.telemetry.stale_connection()
        self._exchange.stale_send = self.send
        self._open()

    # -- the end

    def _win(self) -> None:
        exchange, head = self._exchange, self._head
        assert head is not None
        self._take_over()
        exchange.on_head(head, self._length)
        if self._gathered and exchange.runs:
            exchange.on_data(b"".join(self._gathered))

    def _take_over(self) -> None:
        exchange = self._exchange
        exchange.drop_upstream()
        self._now_it_is_us(HedgeWon(exchange.plane.clock(), exchange.id))
        exchange.carried_by(self.connection)

    def becomes_the_first(self, fault: Fault, status: int | None, detail: str) -> None:
        """The first attempt has failed so: the exchange goes on with this one, wherever it is."""
        exchange = self._exchange
        mark = suspected(exchange, fault, status, exchange.send)
        self._now_it_is_us(Failed(exchange.plane.clock(), exchange.id, fault, status, detail, mark))
        if self.connection is None:
            self.cut()  # the exchange connects for itself
            exchange.connect(self.target)
            return
        exchange.carried_by(self.connection)
        if self._head is not None:
            exchange.on_head(self._head, self._length)
            if self._gathered and exchange.runs:
                exchange.on_data(b"".join(self._gathered))

    def _now_it_is_us(self, event: HedgeWon | Failed) -> None:
        exchange = self._exchange
        exchange.rival = None
        exchange.send, exchange.target, exchange.sent_at = self.send, self.target, self.sent_at
        exchange.phase = WAITING
        if exchange.trail is not None:
            exchange.trail.sent(exchange, self.send, event)
        exchange.plane.tell(event)

    def _fail(self, fault: Fault, status: int | None, detail: str) -> None:
        exchange = self._exchange
        if exchange.trail is not None:
            exchange.trail.second_over(exchange.plane.clock(), fault.value, status)
        self.cut()
        exchange.rival = None
        mark = suspected(exchange, fault, status, self.send)
        exchange.plane.tell(HedgeFailed(exchange.plane.clock(), exchange.id, fault, status, detail, mark))
