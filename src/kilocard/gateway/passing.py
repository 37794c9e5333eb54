"""Text that goes from a replica to its client as it is: nearly every piece of a stream.

All that such a piece needs is in one object, since thousands of streams take turns and each finds the processor's
cache full of the others.
"""

from __future__ import annotations

from bisect import bisect_left
from math import inf
from typing import TYPE_CHECKING, Final

from kilocard.gateway.one_chunk import BEGINS, MAX_CHUNK

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from kilocard.metrics.meters import Histogram

_CR: Final = 0x0D
_LF: Final = 0x0A
_E: Final = 0x65
#: how engines begin an event of text
_OPENING: Final = b'data: {"'
#: no event of text is smaller with its framing
_LEAST: Final = 40
#: how a whole chunk begins that is one event of text, by the length of the read
_TEXT: Final = tuple(begin + _OPENING if whole >= _LEAST else b"\x00" for whole, begin in enumerate(BEGINS))


class Passing:
    """One stream, once its content has begun. Seconds of the gateway's clock."""

    __slots__ = (
        "_clock", "_counts", "_from", "_gaps", "_index", "_send", "_to", "_transport", "events", "last_at", "straight",
    )  # fmt: skip

    def __init__(
        self,
        transport: asyncio.WriteTransport,
        send: Callable[[bytes], int] | None,
        clock: Callable[[], float],
        gaps: Histogram,
    ) -> None:
        """`transport`: to the client. `send`: of its socket, where that may be written to past the transport; says how
        many bytes it took, raises OSError. `gaps` counts the times between pieces."""
        self._transport = transport
        self._send = send
        #: the next piece may go past the transport; False whenever something else may wait there
        self.straight = False
        self._clock = clock
        self._gaps = gaps
        self._counts = gaps.counts
        self._index = 0
        # a gap above the one and up to the other falls into the bucket of the last one
        self._from = self._to = 0.0
        #: when the last piece came
        self.last_at = 0.0
        #: pieces that went this way
        self.events = 0

    def take(self, data: bytes) -> bool:
        """Pass one read on. False: it has to be looked into, and nothing was done.

        Text is a whole chunk of one event in one line, without usage, whose first key is not "error" (nor any other
        with an e). A quote inside JSON text is escaped, so an unescaped "usage" is a key.
        """
        size = len(data)
        if size >= MAX_CHUNK:
            return False
        begin = _TEXT[size]
        if (
            not data.startswith(begin)
            or data[-1] != _LF
            or data[-2] != _CR
            or data[-3] != _LF
            or data[len(begin)] == _E
            or data.find(b"\n", len(begin)) != size - 4
            or (data.rfind(b'"usage"') >= 0 and data.count(b'"usage"') != data.count(b'"usage":null'))
        ):
            return False
        now = self._clock()
        gap = now - self.last_at
        if not self._from < gap <= self._to:
            self._find(gap)
        self._counts[self._index] += 1
        self._gaps.sum += gap
        self.last_at = now
        self.events += 1
        send = self._send
        if self.straight and send is not None:
            try:
                sent = send(data)
            except OSError:
                sent = 0  # full or gone: the transport knows what to do
            if sent == size:
                return True
            data = data[sent:]
        self._transport.write(data)
        self.straight = send is not None and not self._transport.get_write_buffer_size()
        return True

    def _find(self, gap: float) -> None:
        """The bucket of a gap; the next one is likely to fall into it as well."""
        bounds = self._gaps.bounds
        index = self._index = bisect_left(bounds, gap)
        self._from = bounds[index - 1] if index else -inf
        self._to = bounds[index] if index < len(bounds) else inf
