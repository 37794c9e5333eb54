"""Where an HTTP/1.1 response ends in a buffer. By hand: a scrape is one small head and one body. Pure."""

from __future__ import annotations

from typing import NamedTuple

from kilocard.core.errors import UpstreamError

#: no metrics endpoint needs a larger head
MAX_HEAD = 64 * 1024
CHUNKED = -1
UNTIL_CLOSE = -2


class FramingError(UpstreamError):
    """What came is not an HTTP/1.1 response. The URL is for the caller to add."""

    default_code = "protocol"


class Head(NamedTuple):
    status: int
    #: index of the body's first byte in the buffer
    body_at: int
    #: of the body in bytes, or CHUNKED, or UNTIL_CLOSE
    length: int
    #: the connection may carry another request afterwards
    keep_alive: bool


def parse_head(buffer: bytearray, filled: int) -> Head | None:
    """The response head in buffer[:filled]; None while it is not whole. Interim (1xx) heads are passed over.

    Raises FramingError.
    """
    start = 0
    while True:
        if filled - start >= 5 and not buffer.startswith(b"HTTP/", start):
            raise FramingError(f"not HTTP: starts with {bytes(buffer[start : min(filled, start + 60)])!r}")
        end = buffer.find(b"\r\n\r\n", start, filled)
        if (end if end >= 0 else filled) > MAX_HEAD:
            raise FramingError(f"response head is larger than {MAX_HEAD} bytes")
        if end < 0:
            return None
        head = _read_head(bytes(buffer[start:end]).lower() + b"\r\n", end + 4)
        if head.status >= 200:
            return head
        start = end + 4


def _read_head(head: bytes, body_at: int) -> Head:
    version, digits = head[5:8], head[9:12]
    if version not in (b"1.1", b"1.0") or head[8:9] != b" " or not digits.isdigit() or head[12:13] not in b" \r":
        raise FramingError(f"not HTTP/1.1: starts with {head[:60]!r}")
    status = int(digits)
    connection = _value(head, b"\r\nconnection:")
    keep_alive = b"close" not in connection if version == b"1.1" else b"keep-alive" in connection
    if status in (204, 304):
        length = 0
    elif b"chunked" in _value(head, b"\r\ntransfer-encoding:"):
        length = CHUNKED
    elif stated := _value(head, b"\r\ncontent-length:"):
        if not stated.isdigit() or len(stated) > 15:
            raise FramingError(f"content-length {stated[:20]!r} is not a number of bytes")
        length = int(stated)
    else:
        length, keep_alive = UNTIL_CLOSE, False
    return Head(status, body_at, length, keep_alive)


def _value(head: bytes, name: bytes) -> bytes:
    """The header's value; `name` as \\r\\nname: in lower case."""
    at = head.find(name)
    if at < 0:
        return b""
    at += len(name)
    return head[at : head.index(b"\r\n", at)].strip()


class Chunks:
    """Takes a chunked body apart as the buffer fills. `at` moves on; nothing is looked at twice."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.size = 0
        self._pieces: list[bytes] = []
        self._left = -1  # bytes of the present chunk with its line end; -1: at a size line; -2: in the trailers

    def feed(self, buffer: bytearray, filled: int) -> bytes | None:
        """The body if it is whole (`at` is then behind it), else None. Raises FramingError."""
        while True:
            if self._left > 0:
                take = min(self._left, filled - self.at)
                content = min(take, self._left - 2)
                if content > 0:
                    self._pieces.append(bytes(buffer[self.at : self.at + content]))
                    self.size += content
                self.at += take
                self._left -= take
                if self._left:
                    return None
                self._left = -1
            end = buffer.find(b"\r\n", self.at, filled)
            if end < 0:
                if filled - self.at > 1024:
                    raise FramingError("a chunk's size line does not end")
                return None
            line = bytes(buffer[self.at : end])
            self.at = end + 2
            if self._left == -2:
                if not line:
                    return b"".join(self._pieces)
                continue
            digits = line.split(b";", 1)[0].strip()
            if not digits or len(digits) > 8 or digits.translate(None, b"0123456789abcdefABCDEF"):
                raise FramingError(f"{digits[:20]!r} is not the size of a chunk")
            size = int(digits, 16)
            self._left = size + 2 if size else -2
