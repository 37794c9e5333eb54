"""What a JSON answer says of tokens that is too large to be gathered, and so passes by unread."""

from __future__ import annotations

from kilocard.wire.events import Usage, part_usage

#: bytes at either end in which engines say what they used; most say it last, some first
_END = 2048


class Ends:
    """The first and the last bytes of one answer."""

    __slots__ = ("_last", "_said_first")

    def __init__(self, beginning: bytes) -> None:
        self._said_first = part_usage(beginning[:_END])
        self._last = beginning[-_END:]

    def see(self, data: bytes) -> None:
        """The next piece."""
        self._last = data[-_END:] if len(data) >= _END else (self._last + data)[-_END:]

    def usage(self) -> Usage | None:
        """None: it does not say."""
        return part_usage(self._last) or self._said_first
