"""What the client gets to see of one response: a whole, a stream, or an error in the form that is still possible."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kilocard.core.errors import CapacityError, KilocardError
from kilocard.gateway.heads import STREAM_HEADERS, ResponseHead, status_line
from kilocard.wire.failure import error_body, error_event

if TYPE_CHECKING:
    from kilocard.gateway.downstream import ClientConnection
    from kilocard.gateway.passing import Passing
    from kilocard.gateway.request import Inbound

_EVENT_STREAM = status_line(200) + b"content-type: text/event-stream; charset=utf-8\r\n" + STREAM_HEADERS


class ClientSide:
    """The half of an exchange that writes. The other half sets the fields, all of them (no call more per request)."""

    __slots__ = (
        "_chunked", "_failed_answer", "_head_sent", "_passing", "client", "inbound", "last_at", "written_at",
    )  # fmt: skip

    client: ClientConnection
    inbound: Inbound
    #: when the replica gave a sign last, and when the client was last written to
    last_at: float
    written_at: float
    #: the status line is out: an error can only be an event now, or a cut
    _head_sent: bool
    #: our body has no length: it goes out in chunks
    _chunked: bool
    #: what passes by the relay, once content has begun
    _passing: Passing | None

    #: a 5xx answer is kept: if nobody does better, the client gets the engine's own words
    _failed_answer: tuple[ResponseHead, bytes] | None

    def told(self, error: KilocardError) -> KilocardError:
        """What the client hears of it: engines whose queues are full are our capacity, not its quota."""
        if self._failed_answer is None or self._failed_answer[0].status != 429:
            return error
        return CapacityError("Every replica's own queue is full.", code="engine_queue_full", retry_after=2.0)

    def _write(self, data: bytes) -> None:
        self.written_at = self.last_at
        if self._passing is not None:
            self._passing.straight = False
        if self._chunked:
            self.client.write(b"%x\r\n%b\r\n" % (len(data), data))
        else:
            self.client.write(data)

    def _send_stream_head(self, head: ResponseHead | None) -> None:
        """`head`: the replica's, if it has sent one already."""
        self._send_head(_EVENT_STREAM if head is None else head.stream_block(), None)

    def _send_head(self, block: bytes, length: int | None, *, body: bool = True) -> None:
        """Status and fields of a body that passes through, if there is one; `length` None: not known."""
        self._head_sent = True
        if not body:
            self.client.write_head(block, b"")
        elif length is not None:
            self.client.write_head(block, b"content-length: %d\r\n" % length)
        else:
            self._chunked = self.client.can_chunk
            self.client.write_head(block, b"transfer-encoding: chunked\r\n" if self._chunked else None)

    def _end_body(self) -> None:
        if self._chunked:
            self.client.write(b"0\r\n\r\n")

    def _answer(self, head: ResponseHead, body: bytes) -> None:
        """A whole response in one write."""
        if self._head_sent:  # a waiting stream got comments already: the answer becomes its last event
            name = b"event: error\n" if head.status >= 400 and self.inbound.route.anthropic else b""
            self._write(name + b"data: " + b"".join(body.splitlines()) + b"\n\n")
            self._end_body()
            return
        self.client.write_whole(head.block, body)

    def _fail_to_client(self, error: KilocardError, *, half_a_file: bool, words: bytes = b"") -> None:
        """`words`: an engine's own error event, which says more than ours."""
        anthropic = self.inbound.route.anthropic
        if not self._head_sent:
            self.client.write_error(error, error_body(error, anthropic=anthropic))
        elif half_a_file:  # only a cut connection tells the truth
            self.client.cut()
        else:
            self._write(words or error_event(error, anthropic=anthropic))
            if self._chunked:
                self._end_body()
            else:  # only the end of the connection ends such a body
                self.client.close_after_write()
