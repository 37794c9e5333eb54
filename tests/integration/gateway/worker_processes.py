"""`kilocard gateway --workers N` as real processes, over stub engines in the test's own event loop."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import yaml
from stub_engine import Script, StubEngine

from kilocard.net.client import Response, fetch


class Workers:
    """The supervisor's process and what it says."""

    def __init__(self, process: asyncio.subprocess.Process, engines: list[StubEngine]) -> None:
        self.process = process
        self.engines = engines
        self.port = self.admin_port = 0
        self.said = ""
        self._reading: asyncio.Task[None] | None = None

    async def all_said(self) -> None:
        """Its stderr to the end, or the pipe's transport outlives the loop."""
        if self._reading is not None:
            await asyncio.wait_for(self._reading, 20)

    async def read_addresses(self) -> None:
        assert self.process.stderr is not None
        while not self.admin_port:
            line = (await self.process.stderr.readline()).decode()
            assert line, f"it ended: {self.said}"
            self.said += line
            if found := re.search(r"(gateway|admin) +http://[^:]*:(\d+)/", line):
                if found[1] == "gateway":
                    self.port = int(found[2])
                else:
                    self.admin_port = int(found[2])
        self._reading = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        assert self.process.stderr is not None
        while line := await self.process.stderr.readline():
            self.said += line.decode()

    async def get(self, path: str) -> Response:
        return await fetch(f"http://127.0.0.1:{self.admin_port}{path}", timeout=15)

    async def state(self) -> dict[str, Any]:
        state: dict[str, Any] = json.loads((await self.get("/state")).body)
        return state

    async def workers(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = (await self.state())["gateway"]["workers"]
        return rows

    async def metric(self, name: str) -> float:
        """The sum of a family's series."""
        page = (await self.get("/metrics")).body.decode()
        return sum(float(line.rpartition(" ")[2]) for line in page.splitlines() if re.match(rf"{name}(\{{| )", line))

    async def chat(self, text: str = "hi", **headers: str) -> Response:
        """On a connection of its own: the kernel gives it to one worker or another."""
        return await fetch(
            f"http://127.0.0.1:{self.port}/v1/chat/completions",
            method="POST",
            headers=[("content-type", "application/json"), *headers.items()],
            body=json.dumps({"model": "m", "messages": [{"role": "user", "content": text}]}).encode(),
            timeout=40,
        )

    async def on_all(self, count: int, **headers: str) -> list[asyncio.Task[Response]]:
        """So many requests that have come to an engine and hang there, with some on each worker. The kernel deals
        connections out by chance: where one worker got none, all leave and ask anew."""
        while True:
            asking = [asyncio.ensure_future(self.chat(**headers)) for _ in range(count)]

            async def there() -> bool:
                return sum(self.running) == count == sum(row["in_flight"] for row in await self.workers())

            await self.until(there)
            if all(row["in_flight"] for row in await self.workers()):
                return asking
            for each in asking:
                each.cancel()
            await asyncio.gather(*asking, return_exceptions=True)

            async def gone() -> bool:
                return not sum(self.running) and not any(row["in_flight"] for row in await self.workers())

            await self.until(gone)

    async def until(self, what: Any, seconds: float = 40.0) -> Any:
        """Wait until `await what()` is true, and return it."""
        async with asyncio.timeout(seconds):
            while not (found := await what()):
                await asyncio.sleep(0.05)
        return found

    async def restarted(self, slot: int) -> list[dict[str, Any]]:
        """Wait until this worker has been replaced."""

        async def look() -> list[dict[str, Any]] | None:
            rows = await self.workers()
            return rows if rows[slot]["restarts"] and rows[slot]["state"] == "serving" else None

        rows: list[dict[str, Any]] = await self.until(look)
        return rows

    @property
    def running(self) -> list[int]:
        """Requests that each engine has now."""
        return [sum(not asked.gone.is_set() for asked in engine.asked) for engine in self.engines]


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@contextlib.asynccontextmanager
async def workers_over(
    tmp_path: Path,
    *scripts: Script,
    count: int = 2,
    gateway: dict[str, Any] | None = None,
    pool: dict[str, Any] | None = None,
    **cluster: Any,
) -> AsyncIterator[Workers]:
    engines = [StubEngine(script) for script in scripts]
    for engine in engines:
        await engine.start()
    endpoints = [engine.url for engine in engines]
    file = tmp_path / "cluster.yaml"
    spec = {
        "gateway": {"drain": "5s", "store": str(tmp_path / "kilocard.db"), **(gateway or {})},
        "models": {"m": {"pools": {"p": 100}, "hold": {"timeout": "5s"}}},
        "pools": {"p": {"engine": "external", "endpoints": endpoints, **(pool or {})}},
        **cluster,
    }
    file.write_text(yaml.safe_dump(spec))
    command = [sys.executable, "-m", "kilocard", "gateway", str(file), "--port", "0", "--admin-port", "0"]
    process = await asyncio.create_subprocess_exec(
        *command, "--workers", str(count), stderr=asyncio.subprocess.PIPE, env={**os.environ, "NO_COLOR": "1"}
    )
    workers = Workers(process, engines)
    pids: set[int] = set()
    try:
        await workers.read_addresses()

        async def ready() -> bool:
            state = await workers.state()
            pids.update(row["pid"] for row in state["gateway"]["workers"])
            there = [row for row in state["replicas"] if row["state"] != "not_ready"]
            return state["gateway"]["ready"] and len(there) == len(engines)

        await workers.until(ready)
        yield workers
    finally:
        for engine in engines:
            await engine.stop()
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            try:
                await asyncio.wait_for(process.wait(), 40)
            except TimeoutError:
                process.kill()
                await process.wait()
                raise
        assert not [pid for pid in pids if alive(pid)], "a worker outlives its supervisor"
        await workers.all_said()


def port_is_free(port: int) -> bool:
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", port))
            sock.listen(1)
        except OSError:
            return False
    return True
