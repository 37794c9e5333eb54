"""One answer, from the first byte of its head to the last of its body, into a RequestRecord. No I/O, no clock."""

from __future__ import annotations

import contextlib

import httptools

from kilocard.bench import failures
from kilocard.bench.event import Said, read_event
from kilocard.bench.record import RequestRecord
from kilocard.bench.sse import Events, EventTooLarge

#: of an answer that is not a stream; of one that refuses, only the start is kept
MAX_BODY_BYTES = 64 * 1024 * 1024
MAX_REFUSAL_BYTES = 4096


class Answer:
    """Feed it what the socket gives, each piece with the time at which it came.

    Each event that carries tokens is an arrival at the time of the piece that completed it: how TCP cut or joined the
    bytes changes nothing else. `complete` is set when the message ended as its framing says.
    """

    def __init__(self, record: RequestRecord) -> None:
        self.record = record
        self.complete = False
        self.keep_alive = False
        #: bytes of an answer came, were it only a part of the status line
        self.begun = False
        #: token arrivals so far
        self.arrivals = 0
        #: what the server said to an error: an example for the report
        self.message = ""
        self._parser = httptools.HttpResponseParser(self)
        self._now = 0.0
        self._events: Events | None = None
        self._whole = bytearray()
        self._content_type = ""
        self._sized = False
        self._head_done = False
        self._done_seen = False
        self._size = self._last_size = 0

    @property
    def has_head(self) -> bool:
        return self._head_done

    def feed(self, data: bytes, now: float) -> None:
        self._now = now
        self.begun = True
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            cause = error.__context__
            if isinstance(cause, EventTooLarge):
                self._fail(failures.EVENT_TOO_LARGE, str(cause))
            elif isinstance(error, httptools.HttpParserCallbackError):
                raise  # a fault of ours
            elif not self.complete:
                self._fail(failures.NOT_HTTP, str(error))
            self.complete, self.keep_alive = True, False
        if self.complete:
            self._finish()

    def eof(self, now: float) -> bool:
        """The connection ended. True when that is how this answer ends: it has neither a length nor chunks."""
        self._now = now
        if self._head_done and not self._sized and not self.complete:
            self.on_message_complete()
            self.keep_alive = False
            self._finish()
        return self.complete

    def abandon(self) -> None:
        """No more will come."""
        self.record.last_share = self._last_size / self._size if self._size else 0.0
        with contextlib.suppress(AttributeError):
            del self._parser  # it points back to us: spare the garbage collector a cycle

    # llhttp's callbacks

    def on_message_begin(self) -> None:
        if self.complete:  # bytes after the answer to our only request: whose are they?
            self.keep_alive = False

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name == b"content-type":
            self._content_type = value.decode("latin-1").strip().lower()
        elif name in (b"content-length", b"transfer-encoding"):
            self._sized = True
        elif name == b"content-encoding" and value.strip().lower() not in (b"", b"identity"):
            self._fail(failures.COMPRESSED, f"Content-Encoding: {value.decode('latin-1')}")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200 or self.complete:
            return
        self._head_done = True
        self.record.status = status
        if status != 200:
            self._fail(failures.refused(status), "")
        elif self._content_type.startswith("text/event-stream"):
            self._events = Events()

    def on_body(self, data: bytes) -> None:
        if self.complete:
            return
        if self._events is not None:
            for payload in self._events.feed(data):
                self._event(payload)
        elif self.record.error is not None:
            self._whole += data[: MAX_REFUSAL_BYTES - len(self._whole)]
        else:
            self._whole += data
            if (
                not self._content_type.startswith("application/json")
                and bytes(self._whole[:64]).lstrip()[:1] not in b"{"
            ):
                # A stream under another name, as some proxies and home-made servers send it.
                self._events, whole, self._whole = Events(), bytes(self._whole), bytearray()
                self.on_body(whole)
            elif len(self._whole) > MAX_BODY_BYTES:
                raise EventTooLarge(f"the answer is longer than {MAX_BODY_BYTES} bytes")

    def on_message_complete(self) -> None:
        if not self._head_done or self.complete:  # 100 Continue
            return
        self.complete = True
        self.keep_alive = self._parser.should_keep_alive()
        if self._events is not None:
            for payload in self._events.end():
                self._event(payload)

    # what was said

    def _event(self, payload: bytes) -> None:
        if payload == b"[DONE]":
            self._done_seen = True
            return
        said = read_event(payload)
        if said.kind is not None:
            self._arrival(said.kind, said.size)
        if said.finish_reason is not None or said.usage is not None or said.error is not None:
            self._note(said)

    def _arrival(self, kind: str, size: int) -> None:
        record, now = self.record, self._now
        last = record.last_s
        if last is None:
            record.first_s = now
            record.first_kind = kind
        else:
            record.gaps_s.append(now - last)
        record.last_s = now
        self.arrivals += 1
        self._size += size
        self._last_size = size

    def _note(self, said: Said) -> None:
        record = self.record
        if said.error is not None:
            self._fail(failures.error_event(said.error), said.message)
        if said.finish_reason is not None:
            record.finish_reason = said.finish_reason
        usage = said.usage
        if usage is not None:  # the newest counts, part by part: never a sum
            record.input_tokens = record.input_tokens if usage.prompt is None else usage.prompt
            record.output_tokens = record.output_tokens if usage.output is None else usage.output
            record.cached_tokens = record.cached_tokens if usage.cached is None else usage.cached

    def _fail(self, error: str, message: str) -> None:
        if self.record.error is None:  # the first is the cause
            self.record.error, self.message = error, message

    def _finish(self) -> None:
        """The message ended: is it a whole answer?"""
        record = self.record
        if self._events is None and self._head_done:
            if record.error is None:
                self._event(bytes(self._whole))
                self._done_seen = True
            elif not self.message:
                said = read_event(bytes(self._whole))
                self.message = said.message or self._whole.decode("utf-8", "replace")
        if record.error is None:
            if not self._done_seen and record.finish_reason is None:
                self._fail(failures.NO_DONE, f"Content-Type: {self._content_type or 'none'}")
            elif record.first_s is None:
                self._fail(failures.NO_TOKENS, "")
        record.done_s = self._now
        self.abandon()
