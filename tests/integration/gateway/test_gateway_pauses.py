"""A gateway that others kept from running holds that against nobody: what has come meanwhile counts as come."""

from __future__ import annotations

import asyncio
import os
import socket
import time

import pytest
from stub_engine import DONE, END, ROLE, STREAM_HEAD, Asked, Wire, chunk, delta, gateway_over, run, whole

from kilocard.spec.model import Timeouts

BRIEF = Timeouts(connect=5.0, first_token=0.3, first_token_per_prompt_token=0.0, idle=0.3, total=20.0)


class Pause(asyncio.Protocol):
    """As it is read from, the engine answers, and then nothing of this process runs, for longer than any time-out.

    A read's callback is where it hurts: the timers are the next to run, and only then the kernel is asked what came.
    """

    def __init__(self, wire: Wire, answer: bytes) -> None:
        self.engine, self.answer = wire.writer.get_extra_info("socket").fileno(), answer
        self.over = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        assert os.write(self.engine, self.answer) == len(self.answer)  # into the kernel, past the event loop
        time.sleep(0.7)
        self.over.set()


async def says_in_a_pause(wire: Wire, answer: bytes) -> None:
    one, other = socket.socketpair()
    with one:
        transport, pause = await asyncio.get_running_loop().create_unix_connection(
            lambda: Pause(wire, answer), sock=other
        )
        one.send(b".")
        await pause.over.wait()
        transport.close()


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_came_in_a_pause_came_in_time(stream: bool) -> None:
    async def script(asked: Asked, wire: Wire) -> None:
        await says_in_a_pause(wire, STREAM_HEAD + chunk(ROLE) + chunk(delta("x")) if stream else whole())
        if stream:
            await wire.send(chunk(DONE) + END)

    async def story() -> None:
        async with gateway_over(script, timeouts=BRIEF) as setup:
            assert (await setup.chat(stream=stream)).status == 200
            assert len(setup.engines[0].asked) == 1
            replica = setup.gateway.plane.dispatcher.snapshot(setup.gateway.plane.clock())["replicas"][0]
            assert replica["failures"] == 0

    run(story())


def test_a_token_that_came_in_a_pause_came_in_time() -> None:
    async def script(asked: Asked, wire: Wire) -> None:
        await wire.send(STREAM_HEAD + chunk(ROLE) + chunk(delta("x")))
        for _ in range(2):
            await says_in_a_pause(wire, chunk(delta("y")))
        await wire.send(chunk(DONE) + END)

    async def story() -> None:
        async with gateway_over(script, timeouts=BRIEF) as setup:
            body = (await setup.chat(stream=True)).body
            assert body == ROLE + delta("x") + delta("y") * 2 + DONE

    run(story())


def test_a_pause_excuses_no_engine_that_says_nothing() -> None:
    async def script(asked: Asked, wire: Wire) -> None:
        await says_in_a_pause(wire, b"")
        await asked.gone.wait()

    async def story() -> None:
        async with gateway_over(script, timeouts=BRIEF) as setup:
            response = await setup.chat(stream=True)
            assert response.status == 504 and b"first_token_timeout" in response.body, response

    run(story())
