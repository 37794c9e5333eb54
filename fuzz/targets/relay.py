"""EventRelay: bytes out are bytes in, without the usage chunk that only we asked for, however they are cut."""

from __future__ import annotations

import re

from fuzz.cuts import cut, uncut
from kilocard.wire.relay import EventRelay

SEEDS = [
    uncut(
        b'data: {"choices":[{"delta":{"role":"assistant"}}]}\n\ndata: {"choices":[{"delta":{"content":"a"}}]}\n\n'
        b'data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}\n\ndata: [DONE]\n\n'
    ),
    uncut(b': ping\r\n\r\nevent: x\r\ndata: {"type":"message_start"}\r\rdata:{"error":{"code":500}}\r\n\r\n'),
    uncut(b'data: {"choices":[{"text":"a"}],"usage":null}\n\ndata\n\ndata: a\ndata: b\n\n'),
]
_COMMENT = re.compile(rb"(?:\A|[\r\n])(?!data)")
_ENDS = re.compile(rb"[\r\n]+")


def check(data: bytes) -> None:
    pieces, whole = cut(data)
    for hide in (False, True):
        one, other = EventRelay(hide), EventRelay(hide)
        out = one.feed(whole) + one.finish()
        cut_out = b"".join(other.feed(piece) for piece in pieces) + other.finish()
        if not hide:
            # A comment overtakes a preamble that is held.
            assert out == whole or sorted(out) == sorted(whole), "bytes were lost or changed"
            assert out == whole or _COMMENT.search(whole), "the order has changed"
        # A cut within a CRLF: its second half goes with the next event, as an empty line.
        assert _ENDS.sub(b"\n", cut_out).strip() == _ENDS.sub(b"\n", out).strip(), "another answer to other cuts"
        assert (one.content, one.usage, one.error) == (other.content, other.usage, other.error)
