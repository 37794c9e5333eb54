"""A real `kilocard gateway` process in front of a stub engine, and clients that keep it busy."""

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

from stub_engine import StubEngine, until

BODY = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]}).encode()


class GatewayProcess:
    """`answered`: our id of each request that a client has its whole answer to, and when (time.monotonic). `said`: what
    has been read of its standard error."""

    def __init__(self, process: asyncio.subprocess.Process, folder: Path) -> None:
        self.process = process
        self.folder = folder
        self.port = 0
        self.answered: dict[str, float] = {}
        self.said = b""
        self._clients: list[asyncio.Task[None]] = []

    async def started(self) -> None:
        async with asyncio.timeout(90):
            while b"/readyz" not in self.said:
                line = await self.says()
                if line.startswith(b"gateway"):
                    self.port = int(line.split(b"/v1")[0].rpartition(b":")[2])
            while True:  # until the replica is let in
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
                writer.write(b"GET /readyz HTTP/1.0\r\n\r\n")
                status = (await reader.read()).split()[1]
                writer.close()
                if status == b"200":
                    return
                await asyncio.sleep(0.02)

    async def says(self) -> bytes:
        """Its next line."""
        assert self.process.stderr is not None
        line = await self.process.stderr.readline()
        assert line, self.said.decode()
        self.said += line
        return line

    async def complains(self, of: bytes) -> None:
        """Wait until its standard error has said that."""
        async with asyncio.timeout(60):
            while of not in self.said:
                await self.says()

    async def answers(self, count: int) -> None:
        """Wait until clients have so many answers more, however slow the machine."""
        before = len(self.answered)
        await until(lambda: len(self.answered) >= before + count, 60)

    def busy(self, clients: int = 4) -> None:
        """From now on `clients` ask one after the other."""
        self._clients = [asyncio.ensure_future(self._client()) for _ in range(clients)]

    async def rest(self) -> None:
        for task in self._clients:
            task.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)

    async def _client(self) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        request = (
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer alice\r\n"
            b"content-length: %d\r\n\r\n%b" % (len(BODY), BODY)
        )
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                while True:
                    writer.write(request)
                    head = await reader.readuntil(b"\r\n\r\n")
                    fields = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:] if line)
                    await reader.readexactly(int(fields[b"content-length"]))
                    assert b" 200 " in head.split(b"\r\n")[0]
                    self.answered[fields[b"x-request-id"].decode()] = time.monotonic()
                    await asyncio.sleep(0.002)  # the machine is others' too
        finally:
            writer.close()

    def close_stdout(self) -> None:
        """Our end of the pipe."""
        transport = self.process._transport.get_pipe_transport(1)  # type: ignore[attr-defined]
        transport.close()

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        if self.process.returncode is None:
            self.process.send_signal(number)
        return await asyncio.wait_for(self.process.wait(), 60)


@contextlib.asynccontextmanager
async def gateway_process(folder: Path, engine: StubEngine, **gateway: Any) -> AsyncIterator[GatewayProcess]:
    """With one tenant, whose key is `alice`, and the store `kilocard.db` in `folder`."""
    await engine.start()
    spec = {
        "gateway": {
            "listen": "127.0.0.1:0", "admin": "127.0.0.1:0", "store": str(folder / "kilocard.db"), "drain": "2s",
            **gateway,
        },
        "models": {"m": {"pools": {"p": 1}}},
        "pools": {"p": {"engine": "vllm", "endpoints": [engine.url]}},
        "tenants": {"team-a": {"keys": ["sha256:2bd806c97f0e00af1a1fc3328fa763a9269723c8db8fac4f93af71db186d6e90"]}},
    }  # fmt: skip
    (folder / "cluster.yaml").write_text(json.dumps(spec))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "kilocard", "gateway", str(folder / "cluster.yaml"),
        env=os.environ | {"KILOCARD_HOME": str(folder), "COLUMNS": "1000"},
        stderr=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    one = GatewayProcess(process, folder)
    try:
        await one.started()
        yield one
    finally:
        if process.returncode is None:
            process.kill()
        await one.rest()
        # read to the end, or the transports outlive the loop
        await process.communicate()
        await engine.stop()
