"""The processes: emulated engines and a gateway over them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.gateway.children import Child, ChildError, free_port, keep_port
from benchmarks.soak.files import SLOTS, Layout
from kilocard.core.errors import KilocardError
from kilocard.net.client import Client, fetch

KILOCARD = [sys.executable, "-c", "from kilocard.cli.main import main; main()"]
#: engine seconds per second
SPEED = 4


class Emulator:
    """One emulated engine in a process of its own, on a port that it keeps through its lives."""

    def __init__(self, name: str, model: str, seed: int, folder: Path, module: str = "kilocard.emulator") -> None:
        self.name = name
        self.port = free_port()
        self._port_kept = keep_port(self.port)  # while it is dead too
        self.url = f"http://127.0.0.1:{self.port}"
        self._argv = [sys.executable, "-m", module, "--port", str(self.port), "--model", model]
        self._argv += ["--speed", str(SPEED), "--max-num-seqs", str(SLOTS), "--seed", str(seed)]
        self._log = folder / f"emulator-{name}.log"
        self.child = self._start()

    def _start(self) -> Child:
        return Child(self._argv, core=None, log=self._log)

    async def ready(self, within: float = 30.0) -> None:
        deadline = time.monotonic() + within
        while True:
            if self.child.process.poll() is not None:
                raise ChildError(f"emulator {self.name} ended:\n{self.child.log_tail()}")
            with contextlib.suppress(KilocardError):
                if (await fetch(self.url + "/health", timeout=1.0)).status == 200:
                    return
            if time.monotonic() > deadline:
                raise ChildError(f"emulator {self.name} was not ready within {within:g} s:\n{self.child.log_tail()}")
            await asyncio.sleep(0.05)

    async def fault(self, **fault: Any) -> None:
        answer = await fetch(self.url + "/admin/fault", method="POST", body=json.dumps(fault).encode(), timeout=5.0)
        if answer.status != 200:
            raise ChildError(f"emulator {self.name} refused the fault {fault}: {answer.body!r}")

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
        self._port_kept.close()


class GatewayProcess:
    """`kilocard gateway` over the emulators; with workers a supervisor and its children."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.port = layout.port
        layout.path.write_text(layout.text(0))
        argv = [*KILOCARD, "gateway", str(layout.path), "--workers", str(layout.workers)]
        self.child = Child(argv, core=None, log=layout.folder / "gateway.log")
        self._admin = f"http://127.0.0.1:{layout.admin_port}"
        self._client = Client()  # one connection for all looks, as Prometheus has

    async def ready(self) -> None:
        """All of it serves."""
        deadline = time.monotonic() + 30.0
        while time.monotonic() < deadline:
            if self.child.process.poll() is not None:
                break
            with contextlib.suppress(KilocardError):
                if (await fetch(self._admin + "/readyz", timeout=1.0)).status == 200:
                    workers = await self.workers()
                    if all(worker["state"] == "serving" for worker in workers):
                        return
            await asyncio.sleep(0.05)
        raise ChildError(f"the gateway did not become ready:\n{self.child.log_tail()}")

    async def state(self) -> dict[str, Any]:
        return dict(json.loads((await self._client.fetch(self._admin + "/state", timeout=10.0)).body))

    async def workers(self) -> list[dict[str, Any]]:
        """Of /state; none where the gateway is one process."""
        return list((await self.state())["gateway"].get("workers", []))

    async def metrics(self) -> str:
        return (await fetch(self._admin + "/metrics", timeout=10.0)).body.decode()

    async def post_reload(self) -> tuple[int, dict[str, Any]]:
        answer = await fetch(self._admin + "/reload", method="POST", timeout=10.0)
        return answer.status, dict(json.loads(answer.body))

    def hang_up(self) -> None:
        os.kill(self.child.pid, signal.SIGHUP)

    def pids(self) -> list[int]:
        """Of all its processes."""
        pid = self.child.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [pid, *map(int, children)]

    async def stop(self) -> int:
        """SIGTERM; its exit code."""
        await self._client.close()
        self.child.process.send_signal(signal.SIGTERM)
        code = await asyncio.to_thread(self.child.process.wait, 20.0)
        self.child.stop()
        return code


def memory_kib(pid: int) -> int | None:
    """None: it is gone."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
    return None


def open_files(pids: list[int]) -> int:
    count = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            count += len(os.listdir(f"/proc/{pid}/fd"))
    return count


def cpu_seconds(pids: list[int]) -> float:
    """Of those that run, and of their children that have ended."""
    ticks = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            ticks += sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def complaints(child: Child) -> list[str]:
    """Lines of its log that no run should have."""
    expected = (
        "quarantine: replicas", "the cluster file is not taken over", "the certificate is not taken over",
        "signal SIGKILL", "times in a row; the next start",
    )  # fmt: skip
    signs = ("Traceback", "Error:", "xception", "CRITICAL", "ERROR", "never retrieved")
    lines = child.log.read_text(errors="replace").splitlines()
    return [
        line for line in lines if any(sign in line for sign in signs) and not any(words in line for words in expected)
    ]
