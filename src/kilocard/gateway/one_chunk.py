"""How a read looks that is exactly one chunk of a chunked body: the usual piece of a stream, told without a parser."""

from __future__ import annotations

from typing import Final

#: a chunk with its framing that is larger, or whose size is written another way than engines do, takes llhttp's way
MAX_CHUNK: Final = 4096


def _begins(whole: int) -> bytes:
    """How a chunk begins that is `whole` bytes long with its framing: its size says the same as its length."""
    for digits in (1, 2, 3):
        size = whole - digits - 4
        if size > 0 and len(b"%x" % size) == digits:
            return b"%x\r\n" % size
    return b"\x00"  # there is no chunk of that length


#: by the length of the read; what ends with CRLF as well is one chunk
BEGINS: Final = tuple(_begins(whole) for whole in range(MAX_CHUNK))
