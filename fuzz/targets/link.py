"""Frames and messages between supervisor and workers: whole messages or one of two errors, however cut."""

from __future__ import annotations

import msgspec

from fuzz.cuts import cut, uncut
from kilocard.core.errors import KilocardError
from kilocard.core.load import LoadSample
from kilocard.workers import messages as words
from kilocard.workers.frames import Frames
from kilocard.workers.link import batch
from kilocard.workers.loads import Others, Row

SEEDS = [
    uncut(batch([words.Welcome(0, {"models": {}}, [5], 2), words.Found("p/a", "p", "http://a:1")])),
    uncut(batch([words.Sampled("p/a", LoadSample(1.5, 3, None, 0.5)), words.Drain()])),
    uncut(batch([words.News(7, [Others("p/a", 1, 2, 3, 4, 5, None)])])),
    uncut(batch([words.Listening(), words.Report(7, [Row("p/a", 1, cap=4)], True), words.Drained("p/a")])),
]
_DECODERS = tuple(msgspec.msgpack.Decoder(list[kind]).decode for kind in (words.Down, words.Up))


def check(data: bytes) -> None:
    pieces, whole = cut(data)
    one, other = _payloads([whole]), _payloads(pieces)
    assert one == other, "another answer to other cuts"
    for payload in one or ():
        for decode in _DECODERS:
            try:
                said = decode(payload)
            except msgspec.MsgspecError:
                continue
            assert decode(msgspec.msgpack.encode(said)) == said


def _payloads(pieces: list[bytes]) -> list[bytes] | None:
    frames, out = Frames(), []
    try:
        for piece in pieces:
            out += frames.feed(piece)
    except KilocardError:
        return None
    return out
