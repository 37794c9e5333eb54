"""The store that gateways share limits through: a real Redis, killed and started again, empty, while requests run."""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import signal
import time
from pathlib import Path

from benchmarks.gateway.children import Child, ChildError, free_port
from benchmarks.soak.history import History
from benchmarks.soak.pauses import rest

PAUSE = (8.0, 16.0)
AWAY = (0.1, 6.0)


class Redis:
    """Keeps nothing on disk: what it knew is gone when it is killed. Sometimes it only stands still."""

    def __init__(self, folder: Path, seed: int) -> None:
        program = shutil.which("redis-server")
        if program is None:
            raise ChildError("redis-server is not installed: apt-get install redis-server")
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._folder = folder
        self._rng = random.Random(seed + 33)
        self._argv = [program, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        self._argv += ["--dir", str(folder)]
        self.child = self._start()

    def _start(self) -> Child:
        return Child(self._argv, core=None, log=self._folder / "redis.log")

    async def ready(self) -> None:
        deadline = time.monotonic() + 10.0
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                writer.close()
                return
            await asyncio.sleep(0.05)
        raise ChildError(f"redis-server was not ready:\n{self.child.log_tail()}")

    async def run(self, history: History, stopping: asyncio.Event) -> None:
        while await rest(stopping, self._rng.uniform(*PAUSE)):
            process = self.child.process
            if self._rng.random() < 0.3:
                span = history.begin("redis stands still", time.monotonic())
                process.send_signal(signal.SIGSTOP)
                await rest(stopping, self._rng.uniform(*AWAY))
                process.send_signal(signal.SIGCONT)
            else:
                span = history.begin("redis killed", time.monotonic())
                process.kill()
                process.wait()
                await rest(stopping, self._rng.uniform(*AWAY))
                self.child = self._start()
                await self.ready()
            span.until = time.monotonic()

    def stop(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.child.process.send_signal(signal.SIGCONT)
        self.child.stop()
