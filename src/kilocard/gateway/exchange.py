"""One request on its way: from the client's last byte to the response's last byte.

The exchange performs what the dispatcher decides and reports what happens; it decides nothing itself. All of it runs
in callbacks on one thread: state is read and written in one step, with no await in between.

    HELD ──Send──▶ CONNECTING ──▶ WAITING ──first content──▶ STREAMING ──▶ DONE
      ▲                │             │                           │
      └── Hold ◀───────┴──── Failed ─┘ (another replica)         └─ Failed: error event, no retry
"""

from __future__ import annotations

import asyncio
from enum import IntEnum
from typing import TYPE_CHECKING

from kilocard.core.errors import CapacityError, KilocardError, UpstreamError
from kilocard.dispatch.events import Abandoned, Answered, Failed, Fault, Finished, FirstContent
from kilocard.gateway.heads import STREAM_HEADERS, Headers, downstream_headers, status_line
from kilocard.wire.events import Usage, body_usage
from kilocard.wire.failure import error_body, error_event
from kilocard.wire.relay import EventRelay

if TYPE_CHECKING:
    from kilocard.dispatch.instructions import Send
    from kilocard.gateway.downstream import ClientConnection
    from kilocard.gateway.plane import Plane, Target
    from kilocard.gateway.request import Inbound
    from kilocard.gateway.upstream import UpstreamConnection

#: a whole response up to this size is gathered before any of it is sent, so that it can still be retried
MAX_GATHERED = 1024 * 1024
#: statuses that another replica may do better on
_RETRYABLE = frozenset({429, 500, 502, 503, 504})


class Phase(IntEnum):
    HELD = 0
    CONNECTING = 1
    WAITING = 2
    STREAMING = 3
    DONE = 4


class Exchange:
    """Implements upstream.Receiver for the connection that carries it."""

    __slots__ = (
        "_chunked",
        "_failed_answer",
        "_gathered",
        "_gathered_bytes",
        "_head",
        "_head_sent",
        "_inter_token",
        "_last_fault",
        "_task",
        "_upstream",
        "arrived",
        "attempt",
        "client",
        "content_at",
        "deadline",
        "held_seconds",
        "id",
        "inbound",
        "last_at",
        "output_bytes",
        "paused",
        "phase",
        "plane",
        "relay",
        "send",
        "sent_at",
        "status",
        "target",
        "usage",
        "written_at",
    )

    def __init__(self, plane: Plane, client: ClientConnection, inbound: Inbound, number: int, now: float) -> None:
        self.plane = plane
        self.client = client
        self.inbound = inbound
        self.id = number
        self.arrived = self.last_at = self.written_at = now
        self.deadline = now + plane.timeouts.total
        self.phase = Phase.HELD
        self.attempt = 0
        self.send: Send | None = None
        self.target: Target | None = None
        self.sent_at = 0.0
        self.held_seconds = 0.0
        self.content_at = 0.0
        self.status = 0
        self.output_bytes = 0
        self.paused = client.paused
        self.relay: EventRelay | None = None
        self.usage: Usage | None = None
        self._inter_token = plane.telemetry.model(inbound.model).inter_token
        self._task: asyncio.Task[None] | None = None
        self._upstream: UpstreamConnection | None = None
        self._head: Headers = []
        self._head_sent = False
        self._chunked = False
        #: pieces of a body that is not passed on yet; None: bytes go straight to the client
        self._gathered: list[bytes] | None = None
        self._gathered_bytes = 0
        self._last_fault: Fault | None = None
        #: a 5xx answer is kept: if nobody does better, the client gets the engine's own words
        self._failed_answer: tuple[int, Headers, bytes] | None = None

    # -- instructions of the dispatcher

    def dispatch(self, send: Send, target: Target, now: float) -> None:
        if self.attempt == 0:
            self.held_seconds = now - self.arrived
        elif self._last_fault is not None:
            self.plane.telemetry.failed(self._last_fault.value)
        self.attempt = send.attempt
        self.send = send
        self.target = target
        self._failed_answer = None
        self._go(now)

    def refuse(self, error: KilocardError) -> None:
        """The end: nobody can answer this request (any more)."""
        if self.phase is Phase.DONE:
            return
        answer = self._failed_answer
        if answer is not None and not self._head_sent and answer[0] != 429:
            status, headers, body = answer
            self._answer(status, headers, body)
            self._end("upstream_error")
            return
        self.status = error.http_status
        self.plane.telemetry.refusal(error.code)
        self._fail_to_client(error)
        self._end(_outcome(error))

    # -- towards the replica

    def _go(self, now: float, *, fresh: bool = False) -> None:
        assert self.target is not None
        self.sent_at = self.last_at = now
        connection = None if fresh else self.target.connections.idle()
        if connection is not None:
            self._start(connection)
            return
        self.phase = Phase.CONNECTING
        self._task = asyncio.get_running_loop().create_task(self._connect(self.target))

    async def _connect(self, target: Target) -> None:
        try:
            connection = await target.connections.open(self.plane.timeouts.connect)
        except UpstreamError as error:
            if self.phase is Phase.CONNECTING and self.target is target:
                self._task = None
                self._failed(Fault.CONNECT, None, error.message)
            return
        if self.phase is Phase.CONNECTING and self.target is target and not connection.transport.is_closing():
            self._task = None
            self._start(connection)
        else:
            connection.transport.close()

    def _start(self, connection: UpstreamConnection) -> None:
        assert self.target is not None
        self.phase = Phase.WAITING
        self._upstream = connection
        head, body = self.inbound.for_replica(self.target, self.plane.upstream_id(self.id, self.attempt))
        connection.start(self, head, body)
        if self.paused:
            connection.pause(True)

    # -- upstream.Receiver

    def on_head(self, status: int, headers: Headers) -> None:
        now = self.plane.clock()
        self.last_at = now
        self.status = status
        self._head = headers
        if status in _RETRYABLE:
            self._gathered = []
            return
        kind = b""
        encoded = False
        for name, value in headers:
            lower = name.lower()
            if lower == b"content-type":
                kind = value.lower()
            elif lower == b"content-encoding":
                encoded = value.lower() != b"identity"
        stream = kind.startswith(b"text/event-stream") and status == 200
        self._gathered_bytes = 0
        if stream and not encoded:
            if self.relay is None:
                self.relay = EventRelay(self.inbound.hide_usage)
            else:
                self.relay.restart()
        else:
            self.relay = None
        if stream:
            self._gathered = None
            self.plane.tell(Answered(now, self.id, status))
            if not self._head_sent:
                self._send_stream_head(status)
        elif kind.startswith(b"application/json") or self._head_sent or status >= 400:
            self._gathered = []
        else:  # audio, images, anything else: pass on as it comes, with its own length where it has one
            self._gathered = []
            self._release_gathered()

    def on_data(self, data: bytes) -> None:
        now = self.plane.clock()
        gathered = self._gathered
        if gathered is not None:
            self.last_at = now
            gathered.append(data)
            self._gathered_bytes += len(data)
            if self._gathered_bytes > MAX_GATHERED and self.status not in _RETRYABLE and not self._head_sent:
                self._release_gathered()
            return
        relay = self.relay
        if relay is not None:
            started = relay.content
            data = relay.feed(data)
            if not started and relay.content:
                self._first_content(now)
            elif started:
                self._inter_token.observe(now - self.last_at)
        elif self.phase is Phase.WAITING:
            self._first_content(now)
        self.last_at = now
        if data:
            self._write(data)
        elif relay is not None and relay.error and not relay.content:
            self._drop_upstream()
            self._failed(Fault.STATUS, 500, "the replica sent an error event before any content")

    def on_complete(self) -> None:
        self._upstream = None
        relay = self.relay
        if self.status in _RETRYABLE and self._gathered is not None:
            body = b"".join(self._gathered)
            self._failed_answer = (self.status, self._head, body)
            self._failed(Fault.STATUS, self.status, f"the replica answered {self.status}")
            return
        if relay is not None:
            rest = relay.finish()
            if not relay.content:
                # An empty stream is an answer too, if a strange one.
                self._first_content(self.plane.clock())
            if rest:
                self._write(rest)
            self.usage = relay.usage
            if self._chunked:
                self.client.write(b"0\r\n\r\n")
            self._complete(failed=relay.error)
        elif self._gathered is not None:
            body = b"".join(self._gathered)
            self.usage = body_usage(body) if self.status < 400 else None
            self.output_bytes = len(body)
            self._answer(self.status, self._head, body)
            self._complete(failed=False)
        else:
            if self._chunked:
                self.client.write(b"0\r\n\r\n")
            self._complete(failed=False)

    def on_fault(self, fault: Fault, detail: str) -> None:
        self._upstream = None
        self._failed(fault, None, detail)

    def on_stale(self) -> None:
        self._upstream = None
        self.plane.telemetry.stale_connection()
        self._go(self.plane.clock(), fresh=True)

    # -- from the client's side

    def client_gone(self) -> None:
        """The client is no more: free the engine's slot at once."""
        if self.phase is Phase.DONE:
            return
        self._drop_upstream()
        relay = self.relay
        if relay is not None:
            self.usage = relay.usage
        self.phase = Phase.DONE
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
            if self.phase is not Phase.HELD:  # the dispatcher watches what it holds
                self._time_out(Fault.TOTAL, f"not finished within {timeouts.total:g} s")
        elif self.phase is Phase.WAITING:
            limit = timeouts.first_token + timeouts.first_token_per_prompt_token * self.inbound.prompt_tokens
            if now - self.sent_at > limit:
                self._time_out(Fault.FIRST_TOKEN, f"no first token within {limit:.1f} s")
        elif self.phase is Phase.STREAMING and now - self.last_at > timeouts.idle:
            if self.paused:
                self.client.abort()  # connection_lost reports it as gone
            else:
                self._time_out(Fault.IDLE, f"nothing for {timeouts.idle:g} s in the middle of the answer")
        comment = self.plane.keep_alive_comment
        if comment and self.inbound.stream and self.phase < Phase.STREAMING and now - self.written_at > comment:
            if not self._head_sent:
                self._send_stream_head(200)
            self._write(b": keep-alive\n\n")

    def _time_out(self, fault: Fault, detail: str) -> None:
        self._drop_upstream()
        self._failed(fault, None, detail)

    def shut_down(self) -> None:
        """The gateway's own drain time is over."""
        if self.phase is Phase.DONE:
            return
        self._drop_upstream()
        self.plane.tell(Abandoned(self.plane.clock(), self.id))
        self.refuse(CapacityError("The gateway is shutting down.", code="shutting_down"))

    # -- inside

    def _failed(self, fault: Fault, status: int | None, detail: str) -> None:
        self._last_fault = fault
        self.phase = Phase.HELD if self.phase is not Phase.STREAMING else self.phase
        self.plane.tell(Failed(self.plane.clock(), self.id, fault, status, detail))

    def _drop_upstream(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
        upstream, self._upstream = self._upstream, None
        if upstream is not None:
            upstream.drop()

    def _first_content(self, now: float) -> None:
        self.phase = Phase.STREAMING
        self.content_at = now
        self.plane.tell(FirstContent(now, self.id))

    def _complete(self, *, failed: bool) -> None:
        now = self.plane.clock()
        self.phase = Phase.DONE  # first, so that the Refuse that answers a late failure finds nothing to do
        if failed:
            self.plane.tell(Failed(now, self.id, Fault.STATUS, 500, "the replica ended its stream with an error"))
            self._end("upstream_error")
            return
        usage = self.usage
        self.plane.tell(Finished(now, self.id, self.status, usage.output if usage is not None else None))
        self._end("ok" if self.status < 400 else "client_error")

    def _end(self, outcome: str) -> None:
        """Exactly once for each exchange: counted, forgotten, the connection free for the next request."""
        self.phase = Phase.DONE
        self.plane.ended(self, outcome)
        self.client.exchange_ended(self)

    # -- towards the client

    def _write(self, data: bytes) -> None:
        self.output_bytes += len(data)
        self.written_at = self.last_at
        if self._chunked:
            self.client.write(b"%x\r\n%b\r\n" % (len(data), data))
        else:
            self.client.write(data)

    def _send_stream_head(self, status: int) -> None:
        self._head_sent = True
        self._chunked = self.client.can_chunk
        headers = downstream_headers(self._head, True) if self._head else _EVENT_STREAM
        self.client.write_head(
            status_line(status), headers, b"transfer-encoding: chunked\r\n" if self._chunked else None
        )

    def _release_gathered(self) -> None:
        """Too large or of a kind that is not gathered: from here on the bytes pass through."""
        gathered, self._gathered = self._gathered or [], None
        self._head_sent = True
        length = next((value for name, value in self._head if name.lower() == b"content-length"), None)
        headers = downstream_headers(self._head, False)
        if length is not None and length.isdigit():
            self.client.write_head(status_line(self.status), headers, b"content-length: %b\r\n" % length)
        else:
            self._chunked = self.client.can_chunk
            framing = b"transfer-encoding: chunked\r\n" if self._chunked else None
            self.client.write_head(status_line(self.status), headers, framing)
        now = self.plane.clock()
        self.plane.tell(Answered(now, self.id, self.status))
        self._first_content(now)  # status and length are out: there is no way back
        if gathered:
            self._write(b"".join(gathered))

    def _answer(self, status: int, headers: Headers, body: bytes) -> None:
        """A whole response in one write."""
        if self._head_sent:  # a waiting stream got comments already: the answer becomes its last event
            event = b"data: " + b"".join(body.splitlines()) + b"\n\n"
            self._write(event)
            if self._chunked:
                self.client.write(b"0\r\n\r\n")
            return
        self.client.write_whole(status_line(status), downstream_headers(headers, False), body)

    def _fail_to_client(self, error: KilocardError) -> None:
        anthropic = self.inbound.route.anthropic
        if not self._head_sent:
            self.client.write_error(error, error_body(error, anthropic=anthropic))
        elif self.relay is not None or self.phase is not Phase.STREAMING:
            self._write(error_event(error, anthropic=anthropic))
            if self._chunked:
                self.client.write(b"0\r\n\r\n")
            self.client.close_after_write()
        else:  # half of a file: only a cut connection tells the truth
            self.client.abort()


_EVENT_STREAM = b"content-type: text/event-stream; charset=utf-8\r\n" + STREAM_HEADERS


def _outcome(error: KilocardError) -> str:
    if error.http_status == 504:
        return "timeout"
    if isinstance(error, CapacityError):
        return "refused"
    if isinstance(error, UpstreamError):
        return "upstream_error"
    return "client_error"
