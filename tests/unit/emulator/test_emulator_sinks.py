"""Streams that end early on purpose. Steps may still run before the loop cancels the request that died in one."""

from __future__ import annotations

import asyncio

import pytest

from kilocard.emulator.chunks import Answer
from kilocard.emulator.sinks import Stream


class Written:
    """What a Stream does to a Reply; like one it refuses to write after its end."""

    def __init__(self) -> None:
        self.chunks: list[bytes] = []
        self.paused = self.finished = False

    def write_now(self, data: bytes) -> None:
        assert not self.finished
        self.chunks.append(data)

    def abort(self) -> None:
        self.finished = True


def stream(reply: Written, **ends: int) -> Stream:
    return Stream(reply, Answer(True, "id", 0, "m"), 10, "length", 0, **ends)  # type: ignore[arg-type]


@pytest.mark.parametrize("after", [0, 1, 3])
def test_a_stream_that_died_takes_no_more_tokens(after: int) -> None:
    async def story() -> Written:
        reply = Written()
        sink = stream(reply, die_after=after)
        for _ in range(6):
            sink.emit(1)
        return reply

    reply = asyncio.run(story())
    assert reply.finished
    assert len(reply.chunks) == 1 + after  # the role, then tokens


@pytest.mark.parametrize("after", [0, 1, 3])
def test_a_stalled_stream_says_nothing_more_not_even_its_role(after: int) -> None:
    async def story() -> Written:
        reply = Written()
        sink = stream(reply, stall_after=after)
        for _ in range(6):
            sink.emit(1)
        return reply

    assert len(asyncio.run(story()).chunks) == 1 + after
