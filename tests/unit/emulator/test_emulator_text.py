"""The made-up text: says what it is, one piece a token, the same in a stream and in one piece."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from kilocard.emulator.text import FILLER_PIECES, LABEL, LABEL_PIECES, piece_json, text


@given(tokens=st.integers(0, 400), offset=st.integers(0, len(FILLER_PIECES) - 1))
def test_a_stream_and_a_whole_answer_say_the_same(tokens: int, offset: int) -> None:
    assert "".join(json.loads(piece_json(i, offset)) for i in range(tokens)) == text(tokens, offset)


def test_every_answer_begins_with_the_label() -> None:
    assert text(len(LABEL_PIECES), 5) == LABEL
    assert text(100, 5).startswith(LABEL + " ")
    assert LABEL.startswith(text(3, 5))
