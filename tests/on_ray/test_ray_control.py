"""`kilocard gateway` and `kilocard control --backend ray` as a user runs them, with emulated replicas."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml
from openai import OpenAI

from free_ports import free_port

_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Kilocard:
    """Processes of one cluster file."""

    def __init__(self, nodes: Any, folder: Path) -> None:
        self.port, self.admin = free_port(), free_port()
        self.file = folder / "cluster.yaml"
        self.folder = folder
        pool = {"engine": "emulated", "replicas": {"min": 1, "max": 2}, "drain": {"grace": "30s"}}
        spec = {
            "gateway": {"listen": f"127.0.0.1:{self.port}", "admin": f"127.0.0.1:{self.admin}"},
            "models": {"m": {"pools": {"p": 1}}},
            "pools": {"p": pool},
            "ray": {"address": nodes.address, "namespace": "control"},
        }
        self.file.write_text(yaml.safe_dump(spec))
        self.running: list[subprocess.Popen[bytes]] = []

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{words[0]}.log").open("ab") as log:
            argv = [sys.executable, "-m", "kilocard", *words]
            self.running.append(subprocess.Popen(argv, stdout=log, stderr=log))
        return self.running[-1]

    def replicas(self) -> list[dict[str, Any]]:
        with contextlib.suppress(OSError), _DIRECT.open(f"http://127.0.0.1:{self.admin}/state", timeout=5) as answer:
            return list(yaml.safe_load(answer.read())["replicas"])
        return []

    def said(self) -> str:
        return "\n".join(f"--- {file.name}\n{file.read_text()[-3000:]}" for file in self.folder.glob("*.log"))

    def until(self, what: Callable[[], Any], seconds: float = 120.0) -> None:
        end = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < end, (self.replicas(), self.said())
            time.sleep(0.1)

    def ready(self) -> list[str]:
        return [replica["url"] for replica in self.replicas() if replica["state"] == "ready"]

    def ask(self) -> str:
        with OpenAI(base_url=f"http://127.0.0.1:{self.port}/v1", api_key="unused", max_retries=0) as client:
            messages: Any = [{"role": "user", "content": "hello"}]
            answer = client.chat.completions.create(model="m", messages=messages, max_tokens=8)
        return str(answer.choices[0].finish_reason)

    def end(self) -> None:
        for process in self.running:
            if process.poll() is None:
                process.kill()
            process.wait()


@contextlib.contextmanager
def cluster(nodes: Any, folder: Path) -> Iterator[Kilocard]:
    made = Kilocard(nodes, folder)
    try:
        yield made
    finally:
        made.end()
        clean_up(nodes)


def clean_up(nodes: Any) -> None:
    """What lives on without a controller: ended by one whose file has no such pool any more."""
    code = (
        "import asyncio, sys\n"
        "from kilocard.backends.ray.backend import RayBackend\n"
        "from kilocard.engines.registry import engine\n"
        "from kilocard.spec.model import ClusterSpec\n"
        "async def main():\n"
        "    backend = RayBackend(ClusterSpec(), print, engine, address=sys.argv[1], namespace='control')\n"
        "    await backend.open()\n"
        "    await backend.close()\n"
        "asyncio.run(main())\n"
    )
    subprocess.run([sys.executable, "-c", code, nodes.address], check=True, timeout=120)


def test_a_controller_that_dies_changes_nothing_for_clients(nodes: Any, node: Any, tmp_path: Path) -> None:
    with cluster(nodes, tmp_path) as one:
        one.start("gateway", str(one.file))
        controller = one.start("control", str(one.file), "--backend", "ray")
        one.until(one.ready)
        [url] = one.ready()
        assert one.ask() in ("stop", "length")
        controller.send_signal(signal.SIGKILL)
        controller.wait()
        assert one.ask() in ("stop", "length")
        controller = one.start("control", str(one.file), "--backend", "ray")
        one.until(lambda: "controlling p" in (tmp_path / "control.log").read_text().partition("controlling p")[2])
        time.sleep(2)  # a controller that would take it for lost would have said so by now
        assert one.ready() == [url], "the same replica, and no second one"
        assert one.ask() in ("stop", "length")
        controller.send_signal(signal.SIGTERM)
        assert controller.wait(30) == 0
        assert one.ask() in ("stop", "length"), "a controller that is told to end leaves replicas alone"
        os.kill(one.running[0].pid, signal.SIGTERM)
        assert one.running[0].wait(30) == 0
