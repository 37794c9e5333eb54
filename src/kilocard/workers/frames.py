"""Length-prefixed frames: bytes of a stream socket ↔ whole batches of messages. Pure.

4 bytes of length (big-endian), then as many of MessagePack.
"""

from __future__ import annotations

from struct import Struct

from kilocard.core.errors import KilocardError

#: more than that is no batch of ours: a thousand replicas with everything changed take 200 KB
MAX_FRAME = 64 * 1024 * 1024
_LENGTH = Struct(">I")


def frame(payload: bytes) -> bytes:
    """One batch, ready to be written."""
    return _LENGTH.pack(len(payload)) + payload


class Frames:
    """Takes bytes however the socket cuts them."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The payloads that are whole now. Raises KilocardError for a length that can't be."""
        buffer = self._buffer
        buffer += data
        out = []
        start = 0
        while len(buffer) - start >= 4:
            (length,) = _LENGTH.unpack_from(buffer, start)
            if length > MAX_FRAME:
                raise KilocardError(f"a frame of {length} bytes between supervisor and worker: at most {MAX_FRAME}")
            end = start + 4 + length
            if len(buffer) < end:
                break
            out.append(bytes(buffer[start + 4 : end]))
            start = end
        del buffer[:start]
        return out
