"""The processes: emulated engines and a gateway over them, with time-outs so short that ten minutes hold many."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.gateway.children import Child, ChildError, free_port
from benchmarks.soak.malformed import MAX_BODY, MAX_HEAD
from benchmarks.soak.wire import KEY, MODEL
from kilocard.core.errors import KilocardError
from kilocard.net.client import Client, fetch

CONNECT, FIRST_TOKEN, IDLE, TOTAL, CLIENT_IDLE, HOLD = 1.0, 3.0, 2.0, 20.0, 3.0, 5.0
#: attempts that one request has, each on another replica
ATTEMPTS = 3
#: sequences that one replica runs at once; more wait in the gateway
SLOTS = 12

_FILE = """
gateway:
  listen: "127.0.0.1:{port}"
  admin: "127.0.0.1:{admin}"
  timeouts: {{connect: {connect}s, first_token: {first_token}s, first_token_per_prompt_token: 0s, idle: {idle}s,
    total: {total}s}}
  limits: {{header: {header}, body: {body}, buffered: 64MiB, client_idle: {client_idle}s, keep_alive: 60s}}
  drain: 5s
models:
  {model}:
    pools: {{replicas: 1}}
    hold: {{max: 500, timeout: {hold}s}}
    retry: {{attempts: {attempts}}}
    eject: {{backoff: 500ms, backoff_max: 4s}}
    slow_start: 1s
pools:
  replicas:
    engine: vllm
    args: {{max-num-seqs: {slots}}}
    endpoints: [{endpoints}]
tenants:
  soak: {{keys: ["sha256:{digest}"]}}
"""


class Emulator:
    """One emulated engine in a process of its own, on a port that it keeps through its lives."""

    def __init__(self, number: int, seed: int, folder: Path) -> None:
        self.number = number
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._argv = [sys.executable, "-m", "kilocard.emulator", "--port", str(self.port), "--model", MODEL]
        self._argv += ["--speed", "4", "--max-num-seqs", str(SLOTS), "--seed", str(seed + number)]
        self._log = folder / f"emulator-{number}.log"
        self.child = self._start()

    def _start(self) -> Child:
        return Child(self._argv, core=None, log=self._log)

    async def ready(self, within: float = 30.0) -> None:
        deadline = time.monotonic() + within
        while True:
            if self.child.process.poll() is not None:
                raise ChildError(f"emulator {self.number} ended:\n{self.child.log_tail()}")
            with contextlib.suppress(KilocardError):
                if (await fetch(self.url + "/health", timeout=1.0)).status == 200:
                    return
            if time.monotonic() > deadline:
                raise ChildError(f"emulator {self.number} was not ready within {within:g} s:\n{self.child.log_tail()}")
            await asyncio.sleep(0.05)

    async def fault(self, **fault: Any) -> None:
        answer = await fetch(self.url + "/admin/fault", method="POST", body=json.dumps(fault).encode(), timeout=5.0)
        if answer.status != 200:
            raise ChildError(f"emulator {self.number} refused the fault {fault}: {answer.body!r}")

    async def stats(self) -> dict[str, Any]:
        return dict(json.loads((await fetch(self.url + "/admin/stats", timeout=5.0)).body))

    def freeze(self) -> None:
        os.kill(self.child.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.child.pid, signal.SIGCONT)

    def kill(self) -> None:
        os.kill(self.child.pid, signal.SIGKILL)
        self.child.process.wait()

    async def restart(self) -> None:
        self.child = self._start()
        await self.ready()

    def stop(self) -> None:
        self.thaw()
        self.child.stop()


class GatewayProcess:
    """`kilocard gateway` over the emulators."""

    def __init__(self, emulators: list[Emulator], folder: Path) -> None:
        self.port, self.admin_port = free_port(), free_port()
        file = folder / "cluster.yaml"
        file.write_text(
            _FILE.format(
                port=self.port, admin=self.admin_port, connect=CONNECT, first_token=FIRST_TOKEN, idle=IDLE, total=TOTAL,
                header=MAX_HEAD, body=MAX_BODY, client_idle=CLIENT_IDLE, hold=HOLD, attempts=ATTEMPTS, model=MODEL,
                slots=SLOTS,
                endpoints=", ".join(f'"{one.url}"' for one in emulators),
                digest=hashlib.sha256(KEY.encode()).hexdigest(),
            )
        )  # fmt: skip
        argv = [sys.executable, "-c", "from kilocard.cli.main import main; main()", "gateway", str(file)]
        self.child = Child(argv, core=None, log=folder / "gateway.log")
        self._admin = f"http://127.0.0.1:{self.admin_port}"
        self._client = Client()  # one connection for all looks, as Prometheus has

    async def ready(self) -> None:
        deadline = time.monotonic() + 30.0
        while time.monotonic() < deadline:
            if self.child.process.poll() is not None:
                break
            with contextlib.suppress(KilocardError):
                if (await fetch(self._admin + "/readyz", timeout=1.0)).status == 200:
                    return
            await asyncio.sleep(0.05)
        raise ChildError(f"the gateway did not become ready:\n{self.child.log_tail()}")

    async def state(self) -> dict[str, Any]:
        return dict(json.loads((await self._client.fetch(self._admin + "/state", timeout=10.0)).body))

    async def metrics(self) -> str:
        return (await fetch(self._admin + "/metrics", timeout=10.0)).body.decode()

    def memory_kib(self) -> int:
        for line in Path(f"/proc/{self.child.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
        raise ChildError("the gateway has no memory: it is gone")

    def files(self) -> int:
        return len(os.listdir(f"/proc/{self.child.pid}/fd"))

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.child.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    async def stop(self) -> int:
        """SIGTERM; its exit code."""
        await self._client.close()
        self.child.process.send_signal(signal.SIGTERM)
        code = await asyncio.to_thread(self.child.process.wait, 15.0)
        self.child.stop()
        return code


def complaints(child: Child) -> list[str]:
    """Lines of its log that no run should have."""
    signs = ("Traceback", "Error:", "xception", "CRITICAL", "ERROR", "never retrieved")
    lines = child.log.read_text(errors="replace").splitlines()
    return [line for line in lines if any(sign in line for sign in signs)]
