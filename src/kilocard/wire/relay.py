"""The stream between engine and client: whole events pass, byte for byte, however the network cut them.

Events rather than raw reads, for three reasons. The preamble (a role-only chunk) is held until the first content, so
that a replica that dies before it can be replaced without the client seeing two beginnings. A usage chunk that only
we asked for is taken out again. A stream that breaks ends on an event's edge, so the error event after it can be read.
"""

from __future__ import annotations

import re

from kilocard.wire.events import Usage, payload, read

#: two line ends in a row end an event. Atomic groups: a CRLF is one line end, never two.
_BOUNDARY = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
#: an event larger than this passes unread (nothing is lost, only no longer looked at)
MAX_EVENT = 1024 * 1024
#: a preamble larger than this counts as content
MAX_PREAMBLE = 64 * 1024


class EventRelay:
    """Feed what comes from the engine, write what comes back to the client.

    `content` turns true with the first content event; from then on nothing may be retried. `error` turns true with
    an engine's error event; before any content it is held like a preamble, since another replica may do better.
    `events` counts the events from the first content on, without the usage chunk and the last: about one a token,
    used where a client leaves before the usage chunk. `refused` is the status in an error that blames the request and
    is all that the engine has to say; 0: there is none.
    """

    __slots__ = (
        "_finished", "_held", "_held_bytes", "_raw", "_tail", "_wary", "content", "done", "error", "events",
        "hide_usage", "last_words", "refused", "usage",
    )  # fmt: skip

    def __init__(self, hide_usage: bool, wary: bool = False) -> None:
        """`wary`: its response has no end of its own, so only its events tell whether it was whole."""
        self.hide_usage = hide_usage
        self.content = False
        #: [DONE], or what other shapes have in its place, has come; what comes behind it is framing
        self.done = False
        self.error = False
        #: the error event that came before any content, as the engine wrote it, with what it needs before it
        self.last_words = b""
        self.refused = 0
        self.events = 0
        self.usage: Usage | None = None
        self._tail = b""
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._raw = False
        self._wary = wary
        self._finished = False

    def feed(self, data: bytes) -> bytes:
        """The bytes to forward now; may be empty."""
        if self.content and not self._tail and data[-2:] == b"\n\n":
            mentions = data.count(b'"usage"')
            # A quote inside JSON text is escaped, so an unescaped "usage" is a key, and null is no news.
            if (
                (not mentions or mentions == data.count(b'"usage":null'))
                and b'"error"' not in data
                and b"message_stop" not in data  # to be looked at, as `read` knows what ends a stream
                and not self._wary
            ):
                self.events += data.count(b"\n\n")
                if data.endswith(b"data: [DONE]\n\n"):
                    self.done = True
                    self.events -= 1
                return data
        if self._raw:
            return data
        return self._sift(data)

    @property
    def steady(self) -> bool:
        """Content has begun and nothing is held or unfinished: a whole event of text may pass by without being fed."""
        return self.content and not self._tail

    def finish(self) -> bytes:
        """The engine's response is complete: what is still here belongs to it.

        An event that its engine ended with the response, without a blank line, is read like any other.
        """
        out: list[bytes] = []
        tail, self._tail = self._tail, b""
        if tail and not (self.cut and not _ends(tail)):  # else it is a part of an event, which says nothing
            self._event(tail, out)
        return self._release() + b"".join(out)

    def _release(self) -> bytes:
        held = b"".join(self._held)
        self._held.clear()
        return held

    @property
    def cut(self) -> bool:
        """It has ended, and not where a stream ends."""
        return self._wary and not (self.done or self._finished or self._raw)

    def restart(self, wary: bool) -> None:
        """Another replica begins again: forget what the first one said (nothing of it was content)."""
        self._held.clear()
        self._held_bytes = 0
        self._tail = b""
        self._wary = wary
        self.done = self.error = self._finished = False
        self.last_words = b""
        self.usage = None

    def _sift(self, data: bytes) -> bytes:
        data = self._tail + data if self._tail else data
        out: list[bytes] = []
        start = 0
        for boundary in _BOUNDARY.finditer(data, max(0, len(self._tail) - 4)):
            end = boundary.end()
            self._event(data[start:end], out)
            start = end
        self._tail = data[start:]
        if len(self._tail) > MAX_EVENT:
            self._raw = self.content = True
            out.append(self._release() + self._tail)
            self._tail = b""
        return b"".join(out)

    def _event(self, event: bytes, out: list[bytes]) -> None:
        data = payload(event)
        if data is None:  # a comment: an engine's keep-alive, worth passing on at once
            out.append(event)
            return
        meaning = read(data)
        last = meaning.last
        if last:
            self.done = True
        if meaning.usage is not None:
            self.usage = meaning.usage if self.usage is None else self.usage.merged(meaning.usage)
        if meaning.error:
            self.error = True
            if not self.content:
                # a response that fails (OpenAI Responses) was created before, as its clients insist
                before = b"".join(self._held) if last else b""
                self.last_words = before + event.strip(b"\r\n") + b"\n\n"
        if meaning.finished:
            self._finished = True
        if meaning.only_usage and self.hide_usage:
            if event[:1] == b"\n":  # of the event before it, whose last CRLF the network has cut
                out.append(b"\n")
            return
        if self.content:
            if not (meaning.only_usage or last):
                self.events += 1
            out.append(event)
        elif (meaning.content and not self.error) or self._held_bytes + len(event) > MAX_PREAMBLE:
            self.content = True
            self.refused = meaning.refusal
            self.events = 0 if last else 1
            out.extend(self._held)
            out.append(event)
            self._held.clear()
        else:
            self._held.append(event)
            self._held_bytes += len(event)


def _ends(event: bytes) -> bool:
    """A stream may end behind it."""
    data = payload(event)
    if data is None:
        return False
    meaning = read(data)
    return meaning.last or meaning.finished
