"""A stream of server-sent events, however it is cut, into payloads. Pure."""

from __future__ import annotations

#: a tool call with a document in it comes in one event; nothing honest is larger
MAX_EVENT_BYTES = 16 * 1024 * 1024


class EventTooLarge(ValueError):
    """No end of the event within MAX_EVENT_BYTES."""


class Events:
    """LF, CRLF and CR end lines; "data:" may stand without a space; comments (": ping") and other fields are skipped.

    A payload is complete with the empty line after it, which is when servers flush. One that the stream's end leaves
    without an empty line still counts: some servers end with "data: [DONE]\\n".
    """

    __slots__ = ("_after_cr", "_rest")

    def __init__(self) -> None:
        self._rest = b""
        #: the last byte was a CR that has been taken for a line's end: an LF right after it belongs to it
        self._after_cr = False

    def feed(self, data: bytes) -> list[bytes]:
        """Payloads that `data` completes. A line `error: {…}` (llama.cpp) comes out as `{"error": {…}}`."""
        if not self._rest and not self._after_cr and data.find(b"\n") == len(data) - 2 and b"\r" not in data:
            payload = _payload(data[:-2]) if data.endswith(b"\n\n") else b""
            if payload:
                return [payload]  # one whole event, as nearly all are
        if self._after_cr and data:
            self._after_cr = False
            if data.startswith(b"\n"):
                data = data[1:]
        if b"\r" in data:
            self._after_cr = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if self._rest:
            data = self._rest + data
        *blocks, self._rest = data.split(b"\n\n")
        if len(self._rest) > MAX_EVENT_BYTES:
            raise EventTooLarge(f"an event is longer than {MAX_EVENT_BYTES} bytes")
        return [payload for block in blocks if (payload := _payload(block))]

    def end(self) -> list[bytes]:
        rest, self._rest = self._rest, b""
        payload = _payload(rest)
        return [payload] if payload else []


def _payload(block: bytes) -> bytes:
    if block.startswith(b"data:") and b"\n" not in block:
        return block[5:].strip()
    lines = []
    for line in block.split(b"\n"):
        name, colon, value = line.partition(b":")
        if name == b"data" and colon:
            lines.append(value.removeprefix(b" "))
        elif name == b"error" and colon:
            lines.append(b'{"error":%b}' % value)
    return b"\n".join(lines).strip()
