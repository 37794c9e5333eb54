"""`kilocard control` and two gateways as processes of their own, over emulated engines."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from benchmarks.scale_events import LONG, Cluster

from free_ports import free_port
from kilocard.core.errors import KilocardError

SPEC: dict[str, Any] = {
    "models": {"m": {"pools": {"p": 1}}},
    "pools": {
        "p": {
            "engine": "emulated",
            "args": {"max-num-seqs": 4},
            "replicas": {"min": 1, "max": 2},
            "scaling": {"up": {"above": 1, "for": "1s"}, "down": {"below": 0.5, "for": "1s"}, "cooldown": "0s"},
            "drain": {"grace": "30s"},
        }
    },
}


class Cast:
    """The processes of one test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "cluster.yaml"
        self.file.write_text(yaml.safe_dump(SPEC))
        self.logs: list[Path] = []

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        self.logs.append(self.folder / f"log-{len(self.logs)}")
        with self.logs[-1].open("wb") as log:
            return await asyncio.create_subprocess_exec(
                sys.executable, "-m", "kilocard", *arguments, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log,
                env={**os.environ, "KILOCARD_HOME": str(self.folder), "COLUMNS": "200"}, start_new_session=True,
            )  # fmt: skip

    async def gateway(self) -> Cluster:
        port, admin_port = free_port(), free_port()
        ports = ("--port", str(port), "--admin-port", str(admin_port))
        return Cluster(self.file, port, admin_port, await self.start("gateway", str(self.file), *ports))

    async def control(self, *gateways: Cluster) -> asyncio.subprocess.Process:
        admins = [word for gateway in gateways for word in ("--admin", gateway.admin)]
        return await self.start("control", str(self.file), *admins)

    def said(self) -> str:
        return "\n".join(log.read_text() for log in self.logs)


@contextlib.asynccontextmanager
async def cast(folder: Path) -> AsyncIterator[tuple[Cast, list[asyncio.subprocess.Process]]]:
    """What is in the list is ended afterwards, the last one first."""
    one, processes = Cast(folder), list[asyncio.subprocess.Process]()
    try:
        yield one, processes
    except BaseException:
        print(one.said())
        raise
    finally:
        for process in reversed(processes):
            await end(process)


async def end(process: asyncio.subprocess.Process) -> None:
    """Told twice it ends at once: a controller would wait `grace` for the streams of a gateway that is silent. It is
    waited for in any case, or its transport outlives the loop."""
    for number, seconds in ((signal.SIGTERM, 5), (signal.SIGTERM, 20), (signal.SIGKILL, None)):
        if process.returncode is None:
            process.send_signal(number)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), seconds)
            return


async def until(what: str, condition: Any, seconds: float = 60.0) -> Any:
    end = time.monotonic() + seconds
    while True:
        with contextlib.suppress(KilocardError):
            if found := await condition():
                return found
        assert time.monotonic() < end, what
        await asyncio.sleep(0.1)


async def both_answer(*gateways: Cluster) -> None:
    for gateway in gateways:

        async def serves(gateway: Cluster = gateway) -> bool:
            return (await gateway.get("/readyz")).status == 200

        await until("it serves", serves)
        assert await gateway.ask() == ""


def test_two_gateways_one_controller_and_one_that_stands_by(tmp_path: Path) -> None:
    async def body() -> None:
        async with cast(tmp_path) as (one, processes):
            a, b = await one.gateway(), await one.gateway()
            first = await one.control(a, b)
            processes += [a.process, b.process, first]
            await both_answer(a, b)
            second = await one.control(a, b)
            processes.append(second)
            await until("the second stands by", lambda: stands_by(one))

            # streams on both gateways; the leader is told to end: its engines end when both streams have
            streams = [asyncio.ensure_future(gateway.ask(LONG)) for gateway in (a, b)]
            await until("both run", lambda: running(a, b))
            first.send_signal(signal.SIGTERM)
            assert await asyncio.gather(*streams) == ["", ""]
            assert await asyncio.wait_for(first.wait(), 60) == 0

            await both_answer(a, b)  # from a replica that the second has started
            page = await a.page("/scaling")
            assert page["controller"]["leader"]["pid"] == second.pid

            # a gateway that is gone is said, and takes nothing with it
            b.process.kill()
            await until("the silence is noticed", lambda: problem(a, b.admin))
            assert await a.ask() == ""

    asyncio.run(body())


async def stands_by(one: Cast) -> bool:
    return "this controller stands by" in one.said()


async def running(*gateways: Cluster) -> bool:
    return all([sum(row["in_flight"] for row in (await each.replicas()).values()) for each in gateways])


async def problem(gateway: Cluster, url: str) -> bool:
    return any(url in each for each in (await gateway.page("/scaling"))["controller"]["problems"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(("--backend", "kubernetes"), "kilocard render kubernetes"), (("--backend", "nomad"), "local, ray, kubernetes"),
     (("--listen", "9000"), "--listen")],
)  # fmt: skip
def test_what_there_is_not_is_said_with_exit_2(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    async def body() -> tuple[int, str]:
        one = Cast(tmp_path)
        process = await one.start("control", str(one.file), *arguments)
        return await asyncio.wait_for(process.wait(), 60), one.said()

    code, text = asyncio.run(body())
    assert code == 2 and said in text.replace("\n", " "), text
    assert json.dumps(text).count("Traceback") == 0
