"""traceparent: what is understood is written again with the same meaning, and both readers agree."""

from __future__ import annotations

from kilocard.wire.trace import parse, unsampled

SEEDS = [
    b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    b"01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00-more",
    b"ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    b"00-00000000000000000000000000000000-b7ad6b7169203331-01",
]


def check(data: bytes) -> None:
    parent = parse(data)
    assert unsampled(data) == (parent is not None and not parent.sampled)
    if parent is not None:
        assert parent.trace_id and parent.span_id
        again = parse(parent.header())
        assert again is not None and again[:2] == parent[:2] and again.sampled == parent.sampled
