"""Frames, restarts and the overview: the small pure parts of the line."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilocard.core.errors import KilocardError
from kilocard.core.load import LoadSample
from kilocard.workers import messages as words
from kilocard.workers.convictions import Convictions
from kilocard.workers.frames import MAX_FRAME, Frames, frame
from kilocard.workers.loads import Others, Row
from kilocard.workers.restart import LAST, PROVEN, Restarts


@given(st.lists(st.binary(max_size=300), max_size=20), st.integers(1, 50))
def test_batches_come_whole_however_the_socket_cuts_them(payloads: list[bytes], step: int) -> None:
    data = b"".join(frame(payload) for payload in payloads)
    frames = Frames()
    got = [payload for at in range(0, len(data), step) for payload in frames.feed(data[at : at + step])]
    assert got == payloads


def test_a_length_that_cannot_be_is_an_error() -> None:
    with pytest.raises(KilocardError, match="a frame of"):
        Frames().feed((MAX_FRAME + 1).to_bytes(4, "big"))


def test_messages_come_back_as_they_were_said() -> None:
    down: list[words.Message] = [
        words.Welcome(0, {"models": {"m": {"pools": {"p": 1}}}}, [5, 6], 2),
        words.Found("p/a", "p", "http://a:1"),
        words.Sampled("p/a", LoadSample(1.5, 3, None, 0.5)),
        words.News(7, [Others("p/a", 1, 2, 3, 4, 5, None)]),
        words.Ejected("p/a", "connect"),
        words.Drain(),
    ]
    up: list[words.Message] = [words.Listening(), words.Report(7, [Row("p/a", 1, cap=4)], True), words.Drained("p/a")]
    encode = msgspec.msgpack.encode
    assert msgspec.msgpack.decode(encode(down), type=list[words.Down]) == down
    assert msgspec.msgpack.decode(encode(up), type=list[words.Up]) == up


def test_the_first_restart_comes_at_once_and_later_ones_ever_later() -> None:
    restarts = Restarts()
    assert [restarts.died(1.0) for _ in range(5)] == [0.0, 0.5, 1.0, 2.0, 4.0]
    assert restarts.looping
    assert max(restarts.died(1.0) for _ in range(40)) == LAST
    assert restarts.died(PROVEN) == 0.0
    assert not restarts.looping
    assert restarts.total == 46


def test_a_new_worker_hears_which_bodies_are_refused_and_for_how_long_still() -> None:
    convictions = Convictions()
    convictions.add(words.Convicted("5-aa", "m", ["p/a", "p/b"], 60.0), 100.0)
    convictions.add(words.Convicted("5-bb", "m", ["p/c"], 10.0), 100.0)
    assert convictions.now(130.0) == [words.Convicted("5-aa", "m", ["p/a", "p/b"], 30.0)]
    assert convictions.now(160.0) == []
