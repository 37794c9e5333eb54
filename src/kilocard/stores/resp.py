"""RESP, the protocol of Redis and Valkey, as far as it is needed here: bytes to replies and back. No I/O.

Our own, because it stands on the way of every request of a tenant with limits: a client for everything costs five
times as much per call.
"""

from __future__ import annotations


class ReplyError(Exception):
    """The server refused a command. `str()` is its line, e.g. `NOSCRIPT No matching script.`"""

    @property
    def kind(self) -> str:
        """Its first word."""
        return str(self).partition(" ")[0]


Reply = bytes | int | None | ReplyError | list["Reply"]


def command(*words: bytes | str | int) -> bytes:
    """One command, ready to be sent."""
    return b"*%d\r\n%b" % (len(words), b"".join(map(argument, words)))


def argument(word: bytes | str | int) -> bytes:
    """One word of a command."""
    if not isinstance(word, bytes):
        word = str(word).encode()
    return b"$%d\r\n%b\r\n" % (len(word), word)


class _Incomplete(Exception):
    pass


class Replies:
    """Replies out of bytes that come in pieces."""

    def __init__(self) -> None:
        self._data = b""

    def feed(self, data: bytes) -> list[Reply]:
        """Those that are whole now. Raises ValueError at what is no RESP."""
        if self._data:
            data = self._data + data
        place, end = 0, len(data)
        found: list[Reply] = []
        try:
            while place < end:
                reply, place = _reply(data, place)
                found.append(reply)
        except _Incomplete:
            pass
        self._data = data[place:]
        return found


def _reply(data: bytes, place: int) -> tuple[Reply, int]:
    """One reply that begins at `place`, and where the next begins."""
    end = data.find(b"\r\n", place)
    if end < 0:
        raise _Incomplete
    kind, line, after = data[place], data[place + 1 : end], end + 2
    if kind == 36:  # $
        size = int(line)
        if size < 0:
            return None, after
        stop = after + size
        if len(data) < stop + 2:
            raise _Incomplete
        return data[after:stop], stop + 2
    if kind == 43:  # +
        return line, after
    if kind == 45:  # -
        return ReplyError(line.decode(errors="replace")), after
    if kind == 58:  # :
        return int(line), after
    if kind == 42:  # *
        replies: list[Reply] = []
        for _ in range(int(line)):
            reply, after = _reply(data, after)
            replies.append(reply)
        return replies, after
    raise ValueError(f"no RESP: it begins with {data[place : place + 1]!r}")
