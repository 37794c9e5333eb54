"""The access log of a real gateway process: rotated under load, and written to a pipe that nobody reads any more."""

from __future__ import annotations

import json
from pathlib import Path

from gateway_process import gateway_process
from stub_engine import StubEngine, answer, run, until


def test_a_log_that_is_rotated_under_load_has_each_request_once(tmp_path: Path) -> None:
    async def story() -> None:
        path = tmp_path / "access.log"
        async with gateway_process(tmp_path, StubEngine(answer), access_log=str(path)) as gateway:
            gateway.busy()
            for number in range(1, 3):
                await until(lambda: path.exists() and path.stat().st_size, 60)
                await gateway.answers(100)
                path.rename(tmp_path / f"access.log.{number}")
            await until(lambda: path.exists() and path.stat().st_size, 60)
            await gateway.rest()
            assert await gateway.stop() == 0
            files = [tmp_path / "access.log.1", tmp_path / "access.log.2", path]
            ids = [json.loads(line)["request_id"] for file in files for line in file.read_bytes().splitlines()]
            assert all(file.stat().st_size for file in files)
            assert len(ids) == len(set(ids))
            assert set(gateway.answered) <= set(ids)

    run(story())


def test_a_closed_pipe_stops_nobody(tmp_path: Path) -> None:
    async def story() -> None:
        async with gateway_process(tmp_path, StubEngine(answer), access_log="-") as gateway:
            gateway.busy()
            assert gateway.process.stdout is not None
            line = json.loads(await gateway.process.stdout.readline())
            await until(lambda: line["request_id"] in gateway.answered)
            gateway.close_stdout()
            await gateway.complains(b"can't be written to")
            await gateway.answers(100)
            await gateway.rest()
            assert await gateway.stop() == 0

    run(story())
