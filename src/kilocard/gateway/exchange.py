"""One request on its way: from the client's last byte to the response's last byte.

The exchange performs what the dispatcher decides and reports what happens; it decides nothing itself. All of it runs
in callbacks on one thread: state is read and written in one step, with no await in between.

    RESERVING (tenants with limits) ──Grant──▶ HELD
    HELD ──Send──▶ CONNECTING ──▶ WAITING ──first content──▶ STREAMING ──▶ DONE
      ▲                │             │                           │
      └── Hold ◀───────┴──── Failed ─┘ (another replica)         └─ Failed: error event, no retry
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kilocard.core.errors import CapacityError, KilocardError, UpstreamError, UpstreamTimeout
from kilocard.dispatch.events import Abandoned, Answered, Failed, Fault, Finished, FirstContent
from kilocard.gateway.client_side import ClientSide
from kilocard.gateway.ends import Ends
from kilocard.gateway.gathering import DOUBTFUL, EARLY_ERROR, MAX_GATHERED, RETRYABLE, unfit, unfit_stream
from kilocard.gateway.heads import NO_BODY, ResponseHead
from kilocard.gateway.outcome import outcome
from kilocard.gateway.passing import Passing
from kilocard.gateway.phase import CONNECTING, DONE, HELD, RESERVING, STREAMING, WAITING
from kilocard.gateway.poison import suspected
from kilocard.gateway.rival import Rival
from kilocard.tenancy.usage import NOTHING
from kilocard.wire.events import Usage, body_usage, read
from kilocard.wire.relay import EventRelay

if TYPE_CHECKING:
    from kilocard.dispatch.instructions import Send
    from kilocard.gateway.downstream import ClientConnection
    from kilocard.gateway.plane import Plane
    from kilocard.gateway.request import Inbound
    from kilocard.gateway.target import Target
    from kilocard.gateway.telemetry import ModelMeters
    from kilocard.gateway.trail import Trail
    from kilocard.gateway.upstream import UpstreamConnection
    from kilocard.tenancy.limits import Grant


class Exchange(ClientSide):
    """Implements receiver.Receiver for the connection that carries it."""

    __slots__ = (
        "_ends", "_gathered", "_gathered_bytes", "_head", "_held_since", "_last_fault", "_length",
        "_pace", "_task", "_upstream", "arrived", "code", "content_at", "deadline", "grant",
        "held_seconds", "id", "meters", "paused", "phase", "plane", "relay", "request_id", "rival", "send", "sent_at",
        "stale_send", "status", "target", "trail", "usage", "used", "was_held",
    )  # fmt: skip

    def __init__(
        self, plane: Plane, client: ClientConnection, inbound: Inbound, meters: ModelMeters, number: int, now: float
    ) -> None:
        self.plane = plane
        self.client = client
        self.inbound = inbound
        self.id = number
        #: unique in every engine's life: engines abort the wrong request when two share an id (vllm#10583)
        self.request_id = b"kc-%b-%x" % (plane.id_prefix, number)
        self.meters = meters
        self.arrived = self.last_at = self.written_at = now
        total, asked = plane.timeouts.total, inbound.head.timeout
        self.deadline = now + (total if asked is None or asked > total else asked)
        self.phase = HELD
        self.send: Send | None = None
        self.trail: Trail | None = None
        self.target: Target | None = None
        #: the attempt that was on a kept connection which was lost before any answer
        self.stale_send: Send | None = None
        self.sent_at = 0.0
        self.held_seconds = 0.0
        self.was_held = False
        #: since when it waits after a failure; 0: it does not
        self._held_since = 0.0
        self.content_at = 0.0
        self.status = 0
        #: of the error that ended it; "": none of ours
        self.code = ""
        #: what it holds of its tenant's limits, until it has ended
        self.grant: Grant | None = None
        #: what it is charged, known when it has ended
        self.used = NOTHING
        self.paused = client.paused
        self.relay: EventRelay | None = None
        self.usage: Usage | None = None
        self._task: asyncio.Task[None] | None = None
        self._upstream: UpstreamConnection | None = None
        #: a second attempt that runs beside the first
        self.rival: Rival | None = None
        self._head: ResponseHead | None = None
        self._length: int | None = None
        self._head_sent = False
        self._chunked = False
        self._passing = None
        self._pace = meters.inter_token
        #: pieces of a body that is not passed on yet; None: bytes go straight to the client
        self._gathered: list[bytes] | None = None
        self._gathered_bytes = 0
        self._ends: Ends | None = None
        self._last_fault: Fault | None = None
        self._failed_answer = None

    # -- instructions of the dispatcher

    def dispatch(self, send: Send, target: Target, now: float) -> None:
        if send.attempt == 1:
            self.held_seconds = now - self.arrived
        elif self._last_fault is not None:
            if self._held_since:
                self.held_seconds += now - self._held_since
                self._held_since = 0.0
            self.plane.telemetry.failed(self._last_fault.value)
            self._failed_answer = self._last_fault = None  # whoever ends it now, it is not for that
        self.send = send
        self.target = target
        connection = target.connections.idle()
        if connection is None:
            self.connect(target)
        else:
            self._start(connection, now)

    def hedge(self, send: Send, target: Target, now: float) -> None:  # a second attempt, beside the one that runs
        assert self.rival is None
        self.rival = Rival(self, send, target, now)

    def refuse(self, error: KilocardError) -> None:
        """The end: nobody can answer this request (any more)."""
        if self.phase == DONE:
            return
        answer, error = self._failed_answer, self.told(error)
        own = answer is not None and answer[0].status != 429 and error.http_status >= 500
        if answer is not None and own and (not self._head_sent or read(answer[1]).error):
            self._answer(*answer)
            self._end("upstream_error")
            return
        self.status = error.http_status
        self.code = error.code
        self.plane.telemetry.refusal(error.code)
        said = self.relay.last_words if self.relay is not None and self._last_fault is Fault.STATUS else b""
        words = said if error.http_status >= 500 else b""
        self._fail_to_client(error, half_a_file=self.relay is None and self.phase == STREAMING, words=words)
        self._end(outcome(error))

    # -- towards the replica

    def connect(self, target: Target) -> None:
        self.phase = CONNECTING
        self._task = asyncio.get_running_loop().create_task(self._connect(target))

    async def _connect(self, target: Target) -> None:
        try:
            connection = await target.connections.open(self.plane.timeouts.connect)
        except (CapacityError, UpstreamError) as error:
            if self.phase == CONNECTING and self.target is target:
                self._task = None
                if isinstance(error, CapacityError):
                    self.give_up(error)
                else:
                    self.failed(Fault.CONNECT, None, error.message)
            return
        if self.phase == CONNECTING and self.target is target and not connection.transport.is_closing():
            self._task = None
            self._start(connection, self.plane.clock())
        else:
            connection.transport.close()

    def _start(self, connection: UpstreamConnection, now: float) -> None:
        send, target = self.send, self.target
        assert send is not None and target is not None
        self.phase = WAITING
        self.sent_at = self.last_at = now
        self._upstream = connection
        name = self.request_id if send.attempt == 1 else b"%b-%d" % (self.request_id, send.attempt)
        head, body = self.inbound.for_replica(target, name)
        connection.start(self, head, body)
        if self.paused:
            connection.pause(True)

    def carried_by(self, connection: UpstreamConnection | None) -> None:
        """A second attempt has taken over; None: its connection is free again, and the whole response here."""
        self._upstream = connection
        if connection is not None:
            connection.receiver = self
            if self.paused:
                connection.pause(True)

    @property
    def runs(self) -> bool:
        """An attempt of it is under way, with or without content."""
        return self.phase in (WAITING, STREAMING)

    # -- receiver.Receiver

    def on_head(self, head: ResponseHead, length: int | None) -> None:
        now = self.plane.clock()
        self.last_at = now
        self._head = head
        self._length = length
        status = self.status = head.status
        self._gathered_bytes = 0
        if head.stream:
            self._on_stream_head(head, now)
            return
        self.relay = None
        self._gathered = []
        passes = status < 400 and not head.content_type.startswith(b"application/json")
        if not self._head_sent and (passes or status in NO_BODY):
            self._release_gathered()  # audio, images, anything else: pass on as it comes

    def on_whole(self, head: ResponseHead, body: bytes) -> None:
        """The usual answer: whole, in one read."""
        status = head.status
        if status in DOUBTFUL or head.stream:
            upstream = self._upstream
            self.on_head(head, len(body))
            if body and self._upstream is upstream and self.runs:
                self.on_data(body)
            if self._upstream is upstream and self.runs:  # not failed by what it said
                self.on_complete()
            return
        self._upstream = self.relay = None
        self._head = head
        self.status = status
        if status < 400:
            self.usage = body_usage(body)
        if self._head_sent:
            self._answer(head, body)
        else:
            self.client.write_whole(head.block, body)
        self._complete(failed=False)

    def _on_stream_head(self, head: ResponseHead, now: float) -> None:
        self._gathered = None
        if head.encoded:
            self.relay = None
            if self._head_sent:  # as plain text
                self.drop_upstream()
                self.failed(Fault.PROTOCOL, None, "the replica's stream is compressed, and nobody asked for that")
                return
        elif self.relay is None:
            self.relay = EventRelay(self.inbound.hide_usage, head.until_close(self._length))
        else:
            self.relay.restart(head.until_close(self._length))
        self.plane.tell(Answered(now, self.id, head.status))
        if not self._head_sent:
            self._send_stream_head(self._head)
            if head.encoded:  # the client has been told so: no other replica's stream can follow
                self._first_content(now)

    @property
    def events(self) -> int:
        """Events that passed by the relay."""
        return 0 if self._passing is None else self._passing.events

    def _last_sign(self) -> float:
        """When the replica gave a sign last."""
        return self.last_at if self._passing is None else max(self.last_at, self._passing.last_at)

    def on_data(self, data: bytes) -> None:
        now = self.plane.clock()
        gathered = self._gathered
        if gathered is not None:
            self.last_at = now
            gathered.append(data)
            self._gathered_bytes += len(data)
            if self._gathered_bytes > MAX_GATHERED:
                self._gathered_too_much()
            return
        relay = self.relay
        if relay is not None:
            started = relay.content
            data = relay.feed(data)
            if started:
                self._pace.observe(now - self._last_sign())
            elif relay.content:
                self._first_content(now)
            elif relay.error:  # comments beside it say nothing
                self.drop_upstream()
                self.failed(*EARLY_ERROR)
                return
        elif self.phase == WAITING:
            self._first_content(now)
        elif self._ends is not None:
            self._ends.see(data)
        self.last_at = now
        if relay is not None and self._chunked and self._upstream is not None:
            self._upstream.passing = self._pass_by(now) if relay.steady else None
        if data:
            self._write(data)

    def _pass_by(self, now: float) -> Passing:
        passing = self._passing
        if passing is None:
            client = self.client
            passing = self._passing = Passing(client.transport, client.borrow(), self.plane.clock, self._pace)
        passing.last_at = now
        return passing

    def _gathered_too_much(self) -> None:
        """A large answer passes from here on. An error page of that size, or one that has to become an event, can't."""
        if self.status in RETRYABLE or self._head_sent:
            self.drop_upstream()
            self.failed(Fault.STATUS, self.status, f"the replica answered {self.status} with more than 1 MiB")
        else:
            self._release_gathered()

    def on_complete(self) -> None:
        self._upstream = None
        relay = self.relay
        assert self._head is not None
        if relay is not None:
            rest = relay.finish()
            if (failure := unfit_stream(relay)) is not None:
                self.failed(*failure)
                return
            if self.phase == WAITING:
                # An empty stream is an answer too, if a strange one.
                self._first_content(self.plane.clock())
            if rest:
                self._write(rest)
            self.usage = relay.usage
            self._end_body()
        elif self._gathered is not None:
            body = b"".join(self._gathered)
            if (failure := unfit(self._head, self._length, body)) is not None:
                self._failed_answer = (self._head, body) if failure[0] is Fault.STATUS else None
                self.failed(*failure)
                return
            self.usage = body_usage(body) if self.status < 400 else None
            self._answer(self._head, body)
        else:
            self.usage = None if self._ends is None else self._ends.usage()
            self._end_body()
        self._complete(failed=relay is not None and relay.error)

    def on_fault(self, fault: Fault, detail: str) -> None:
        self._upstream = None
        self.failed(fault, None, detail)

    def on_stale(self) -> None:
        self._upstream = None
        self.plane.telemetry.stale_connection()
        self.stale_send = self.send
        assert self.target is not None
        self.connect(self.target)

    # -- from the client's side

    def client_gone(self) -> None:
        """The client is no more: free the engine's slot at once."""
        if self.phase == DONE:
            return
        self.drop_upstream()
        self._drop_rival()
        relay = self.relay
        reserving = self.phase == RESERVING
        self.phase = DONE
        if relay is not None:
            self.usage = relay.usage
            if relay.done or relay.refused:  # it had all that it comes to, only not the end of the framing
                self._complete(failed=False)
                return
        if not reserving:  # else the dispatcher does not know of it
            self.plane.tell(Abandoned(self.plane.clock(), self.id))
        self._end("client_gone")

    def client_paused(self, paused: bool) -> None:
        """Backpressure: a client that does not read stops its replica's connection being read."""
        self.paused = paused
        self.last_at = self.plane.clock()
        if self._upstream is not None:
            self._upstream.pause(paused)

    # -- time

    def check(self, now: float) -> None:
        """Called about ten times a second."""
        timeouts = self.plane.timeouts
        if now >= self.deadline:
            if self.phase == RESERVING:
                self.refuse(UpstreamTimeout("The limits' store gave no answer in time.", code="total_timeout"))
            elif self.phase != HELD:  # the dispatcher watches what it holds
                self._time_out(Fault.TOTAL, f"not finished within {self.deadline - self.arrived:g} s")
        elif self.phase == WAITING:
            limit = self.inbound.first_token_limit(timeouts)
            if now - self.sent_at > limit:
                self._time_out(Fault.FIRST_TOKEN, f"no first token within {limit:.1f} s")
        elif self.phase == STREAMING and now - self._last_sign() > timeouts.idle:
            if not self.paused:
                self._time_out(Fault.IDLE, f"nothing for {timeouts.idle:g} s in the middle of the answer")
            elif self.client.takes():  # since the last look, which may be as long ago
                self.last_at = now
            else:
                self.client.abort()  # connection_lost reports it as gone
        comment = self.plane.keep_alive_comment
        if comment and self.inbound.stream and self.phase < STREAMING and now - self.written_at > comment:
            if not self._head_sent:
                self._send_stream_head(self._head)
            self._write(b": keep-alive\n\n")

    def _time_out(self, fault: Fault, detail: str) -> None:
        self.drop_upstream()
        if fault is Fault.TOTAL:
            self._drop_rival()
        self.failed(fault, None, detail)

    def shut_down(self) -> None:  # the gateway's own drain time is over
        self.give_up(CapacityError("The gateway is shutting down.", code="shutting_down"))

    def give_up(self, error: CapacityError) -> None:  # it is we who can't go on
        if self.phase == DONE:
            return
        self.drop_upstream()
        self._drop_rival()
        if self.phase != RESERVING:
            self.plane.tell(Abandoned(self.plane.clock(), self.id))
        self.refuse(error)

    # -- inside

    def _release_gathered(self) -> None:  # from here on the bytes pass through
        gathered, self._gathered = self._gathered or [], None
        head = self._head
        assert head is not None
        self._send_head(head.block, self._length, body=self.status not in NO_BODY)
        now = self.plane.clock()
        self.plane.tell(Answered(now, self.id, self.status))
        self._first_content(now)  # status and length are out: there is no way back
        if gathered:
            body = b"".join(gathered)
            self._ends = Ends(body)
            self._write(body)

    def failed(self, fault: Fault, status: int | None, detail: str) -> None:
        if self.phase == STREAMING and self.relay is not None and self.relay.done:  # only the end of framing is missing
            self.on_complete()
            return
        if self.rival is not None and fault is not Fault.TOTAL:
            self._failed_answer = None  # as where `dispatch` goes on to another replica
            self.rival.becomes_the_first(fault, status, detail)
            return
        self._last_fault = fault
        self.phase = HELD if self.phase != STREAMING else self.phase
        mark = suspected(self, fault, status, self.send)
        now = self.plane.clock()
        self.plane.tell(Failed(now, self.id, fault, status, detail, mark))
        if self.phase == HELD:
            self._held_since = now

    def drop_upstream(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
        upstream, self._upstream = self._upstream, None
        if upstream is not None:
            upstream.drop()

    def _drop_rival(self) -> None:
        if (rival := self.rival) is not None:
            self.rival = None
            rival.cut()

    def _first_content(self, now: float) -> None:
        if self.rival is not None:
            self._drop_rival()
        self.phase = STREAMING
        if self.relay is not None and self.relay.refused:
            self.status = self.relay.refused
        else:
            self.content_at = now
        self.plane.tell(FirstContent(now, self.id))

    def _complete(self, *, failed: bool) -> None:
        plane = self.plane
        now = plane.clock()
        if self.rival is not None:
            self._drop_rival()
        self.phase = DONE  # first, so that the Refuse that answers a late failure finds nothing to do
        if failed:
            mark = suspected(self, Fault.STATUS, 500, self.send)
            plane.tell(Failed(now, self.id, Fault.STATUS, 500, "the replica ended its stream with an error", mark))
            plane.ended(self, "upstream_error", now)
            return
        usage = self.usage
        finished = (now, self.id, self.status, None if usage is None else usage.output)
        plane.tell(tuple.__new__(Finished, finished))  # half the cost of Finished(…), for each request
        plane.ended(self, "ok" if self.status < 400 else "client_error", now)

    def _end(self, how: str) -> None:
        if self.rival is not None:
            self._drop_rival()
        self.phase = DONE
        now = self.plane.clock()
        if self._held_since:
            self.held_seconds += now - self._held_since
        self.plane.ended(self, how, now)
