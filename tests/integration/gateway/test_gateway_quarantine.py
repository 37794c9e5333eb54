"""Poison requests against real sockets: engines that die of one body, close their port and reset every connection."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
from stub_engine import (
    ROLE,
    STREAM_HEAD,
    Asked,
    Setup,
    StubEngine,
    Wire,
    answer,
    chunk,
    delta,
    gateway_over,
    run,
    until,
    whole,
)

from kilocard.core.replica import Endpoint, Found
from kilocard.net.client import Response
from kilocard.spec.model import HoldSpec, ModelSpec, QuarantineSpec

MAGIC = "crash now"


class Mortal:
    """Scripts of engines that die when they see MAGIC."""

    def __init__(self, *, restart: float | None = None, mid_stream: bool = False, exits_late: float = 0.0) -> None:
        self.restart = restart
        self.mid_stream = mid_stream
        self.exits_late = exits_late
        self.deaths: list[int] = []
        self.sick: set[int] = set()
        self.engines: list[StubEngine] = []
        self._ends: set[asyncio.Task[None]] = set()

    def script(self, number: int) -> Any:
        async def serve(asked: Asked, wire: Wire) -> None:
            if number in self.sick:
                await wire.send(whole(b'{"error":{"message":"EngineDeadError"}}', "500 Internal Server Error"))
            elif MAGIC in asked.body.decode():
                if self.mid_stream:
                    await wire.send(STREAM_HEAD + chunk(ROLE) + chunk(delta("hel")))
                await asyncio.sleep(0.05)
                await self.die(number)
                await (wire.send(whole(b"{}", "500 Internal Server Error")) if self.exits_late else asyncio.sleep(5))
            else:
                await asyncio.sleep(0.2)
                if number in self.sick:
                    await wire.send(whole(b"{}", "500 Internal Server Error"))
                else:
                    await answer(asked, wire)

        return serve

    async def die(self, number: int) -> None:
        """As a process that exits: the port is closed, then every connection is reset."""
        self.deaths.append(number)
        if self.exits_late:
            self.sick.add(number)
        end = asyncio.ensure_future(self._exit(number))
        self._ends.add(end)
        end.add_done_callback(self._ends.discard)

    async def _exit(self, number: int) -> None:
        await asyncio.sleep(self.exits_late)
        engine = self.engines[number]
        await engine.die()
        if self.restart is not None:
            await asyncio.sleep(self.restart)
            self.sick.discard(number)
            await engine.start(engine.port)


@contextlib.asynccontextmanager
async def mortals(count: int, mortal: Mortal, model: ModelSpec | None = None) -> AsyncIterator[Setup]:
    model = model or ModelSpec("m", {"p": 1}, hold=HoldSpec(1000, 10.0))
    async with gateway_over(*(mortal.script(number) for number in range(count)), model=model) as setup:
        mortal.engines = setup.engines
        yield setup


class Crowd:
    """So many innocent requests in flight all the time, each with a body of its own."""

    def __init__(self, setup: Setup, size: int, *, stream: bool) -> None:
        self.setup = setup
        self.stream = stream
        self.answers: list[Response] = []
        self._numbers = itertools.count()
        self._over = False
        self._tasks = [asyncio.ensure_future(self._one()) for _ in range(size)]

    async def _one(self) -> None:
        while not self._over:
            body = [{"role": "user", "content": f"innocent {next(self._numbers):06}"}]
            self.answers.append(await self.setup.chat(stream=self.stream, messages=body))

    async def has(self, count: int) -> None:
        """Until so many answers are there."""
        while len(self.answers) < count:
            await asyncio.sleep(0.02)

    async def __aenter__(self) -> Crowd:
        await asyncio.sleep(0.3)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._over = True
        await asyncio.gather(*self._tasks)

    def broken(self) -> list[Response]:
        return [answer for answer in self.answers if answer.status != 200 or b'"error"' in answer.body]


async def poison(setup: Setup, *, stream: bool = False) -> tuple[int, dict[str, Any], Response]:
    response = await setup.chat(stream=stream, messages=[{"role": "user", "content": MAGIC}])
    error = {}
    if b'"error"' in response.body:
        last = response.body.strip().rpartition(b"data: ")[2]
        error = json.loads(last)["error"]
    return response.status, error, response


@pytest.mark.parametrize("stream", [False, True])
def test_38_one_poison_in_a_fleet_of_8_kills_at_most_two_and_no_innocent_is_lost(
    stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        mortal = Mortal()
        async with mortals(8, mortal) as setup:
            async with Crowd(setup, 40, stream=stream) as crowd:
                for _ in range(20):  # the client sends it again and again
                    status, error, response = await poison(setup, stream=stream)
                    assert (status, error["code"]) == (422, "poison_request")
                    assert int(response.headers["retry-after"]) > 500
                    assert "2 replicas of model m died" in error["message"]
                await crowd.has(100)
            assert len(mortal.deaths) == 2
            assert not crowd.broken()
            page = setup.gateway.plane.telemetry.registry.render()
            assert b'kilocard_replica_deaths_total{pool="p"} 2' in page
            assert b'kilocard_quarantined{model="m"} 1' in page
            assert b'kilocard_refused_total{code="poison_request"} 20' in page

    with caplog.at_level(logging.ERROR, "kilocard.gateway"):
        run(story())
    (line,) = [record.getMessage() for record in caplog.records if "quarantine" in record.getMessage()]
    assert "model m" in line and "request kc-" in line and MAGIC not in line


ENGINE = """
import http.server, os, sys

class Engine(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, body):
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.answer(b'{"object":"list","data":[{"id":"m"}]}')

    def do_POST(self):
        if b"crash now" in self.rfile.read(int(self.headers["content-length"])):
            os._exit(139)
        self.answer(b'{"choices":[]}')

    def log_message(self, *_):
        pass

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Engine)
print(server.server_address[1], flush=True)
server.serve_forever()
"""


def test_38_processes_that_exit() -> None:
    async def story() -> None:
        program = [sys.executable, "-c", ENGINE]
        processes = [await asyncio.create_subprocess_exec(*program, stdout=subprocess.PIPE) for _ in range(4)]
        try:
            async with gateway_over() as setup:
                for number, process in enumerate(processes):
                    assert process.stdout is not None
                    port = int(await process.stdout.readline())
                    setup.gateway.apply(Found(Endpoint(f"p/{number}", "p", f"http://127.0.0.1:{port}")))
                for _ in range(5):
                    assert (await poison(setup))[0] == 422
                    assert (await setup.chat()).status == 200
                await until(lambda: sum(process.returncode is not None for process in processes) >= 2)
                assert sum(process.returncode is not None for process in processes) == 2
        finally:
            for process in processes:
                if process.returncode is None:
                    process.kill()
                await process.communicate()  # to the end of the pipe, whose transport would outlive the loop

    run(story())


def test_38_an_only_replica_is_killed_twice_and_then_left_alone() -> None:
    async def story() -> None:
        mortal = Mortal(restart=0.5)
        model = ModelSpec("m", {"p": 1}, hold=HoldSpec(1000, 15.0), quarantine=QuarantineSpec(2, 60.0), slow_start=0.0)
        async with mortals(1, mortal, model) as setup:
            async with Crowd(setup, 5, stream=False) as crowd:
                for _ in range(3):
                    status, error, _ = await poison(setup)
                    assert (status, error["code"]) == (422, "poison_request")
            assert len(mortal.deaths) == 2
            assert not crowd.broken()

    run(story())


def test_38_death_in_the_middle_of_a_stream_counts() -> None:
    async def story() -> None:
        mortal = Mortal(mid_stream=True)
        async with mortals(4, mortal) as setup:
            async with Crowd(setup, 12, stream=False) as crowd:
                codes = [(await poison(setup, stream=True))[1]["code"] for _ in range(4)]
                assert codes == ["reset", "reset", "poison_request", "poison_request"]
            assert len(mortal.deaths) == 2 and not crowd.broken()

    run(story())


def test_38_an_engine_that_answers_500_and_exits_a_moment_later() -> None:
    """vLLM's EngineDeadError, with a health page that goes on lying until the exit."""

    async def story() -> None:
        mortal = Mortal(exits_late=0.4)
        async with mortals(6, mortal) as setup:
            async with Crowd(setup, 20, stream=False) as crowd:
                for _ in range(3):
                    status, error, _ = await poison(setup)
                    assert (status, error["code"]) == (422, "poison_request")
            assert len(mortal.deaths) == 2 and not crowd.broken()

    run(story())
