"""JSON out of bytes: hardly any random bytes are JSON, so some inputs name words instead of signs."""

from __future__ import annotations

from collections.abc import Sequence

_SIGNS = (b"{", b"}", b"[", b"]", b":", b",", b"null", b"true", b"false", b"0", b"1", b"-2", b"1e400", b'""', b" ")


def spelled(data: bytes, words: Sequence[bytes]) -> bytes:
    """`data`, or what it spells where its first byte is 1: each byte a word."""
    if data[:1] != b"\x01":
        return data
    both = [*_SIGNS, *words]
    return b"".join(both[byte % len(both)] for byte in data[1:])


def spelling(text: bytes, words: Sequence[bytes]) -> bytes:
    """A seed that spells `text`, which has to be made of the words."""
    both = [*_SIGNS, *words]
    by_length = sorted(range(len(both)), key=lambda number: -len(both[number]))
    out = b"\x01"
    while text:
        number = next(number for number in by_length if text.startswith(both[number]))
        out += bytes([number])
        text = text[len(both[number]) :]
    return out
