"""The network cuts bytes where it likes: so do the targets, at places that the input itself names."""

from __future__ import annotations

import itertools


def cut(data: bytes) -> tuple[list[bytes], bytes]:
    """The pieces, and the whole. The first byte says how many cuts there are (at most 7), the next ones where."""
    if not data:
        return [], b""
    count = data[0] & 7
    places, whole = data[1 : 1 + count], data[1 + count :]
    edges = sorted({0, len(whole), *(place * len(whole) // 255 for place in places)})
    return [whole[a:b] for a, b in itertools.pairwise(edges)], whole


def uncut(whole: bytes) -> bytes:
    """A seed: these bytes in three pieces."""
    return b"\x02\x55\xaa" + whole
