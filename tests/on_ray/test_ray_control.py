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
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml
from openai import OpenAI

from free_ports import free_port

HELLO: Any = [{"role": "user", "content": "hello"}]
#: more than 1 waits for 1 s: one more; at most 0.5 for 1 s: one fewer
SCALING = {"up": {"above": 1, "for": "1s"}, "down": {"below": 0.5, "for": "1s"}, "cooldown": "0s"}
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Kilocard:
    """Processes of one cluster file."""

    def __init__(self, nodes: Any, folder: Path, **pool: Any) -> None:
        self.port, self.admin = free_port(), free_port()
        self.file = folder / "cluster.yaml"
        self.folder = folder
        pool = {"engine": "emulated", "replicas": {"min": 1, "max": 2}, "drain": {"grace": "30s"}, **pool}
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
        with self.client() as client:
            answer = client.chat.completions.create(model="m", messages=HELLO, max_tokens=8)
        return str(answer.choices[0].finish_reason)

    def stream(self, tokens: int) -> int:
        """How many tokens came, by usage. Raises what the client raises where the stream breaks."""
        with self.client() as client:
            events = client.chat.completions.create(
                model="m", messages=HELLO, max_tokens=tokens, extra_body={"ignore_eos": True},
                stream=True, stream_options={"include_usage": True},
            )  # fmt: skip
            return sum(event.usage.completion_tokens for event in events if event.usage)

    def client(self) -> OpenAI:
        return OpenAI(base_url=f"http://127.0.0.1:{self.port}/v1", api_key="unused", max_retries=0, timeout=120)

    def end(self) -> None:
        for process in self.running:
            if process.poll() is None:
                process.kill()
            process.wait()


@contextlib.contextmanager
def cluster(nodes: Any, folder: Path, **pool: Any) -> Iterator[Kilocard]:
    made = Kilocard(nodes, folder, **pool)
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


def until_two(one: Kilocard) -> int:
    """A client that asks again and again: the fewest tokens of an answer."""
    end = time.monotonic() + 120
    fewest = one.stream(200)
    while len(one.ready()) < 2:
        assert time.monotonic() < end, (one.replicas(), one.said())
        fewest = min(fewest, one.stream(200))
    return fewest


def test_load_brings_a_second_replica_and_none_of_its_streams_is_cut_when_it_goes(
    nodes: Any, node: Any, tmp_path: Path
) -> None:
    with cluster(nodes, tmp_path, args={"max-num-seqs": 2}, scaling=SCALING) as one:
        one.start("gateway", str(one.file))
        one.start("control", str(one.file), "--backend", "ray")
        one.until(one.ready)
        with ThreadPoolExecutor(8) as clients:
            # 6 more than one replica runs at once, until both serve; then two long ones, each replica has one
            busy = [clients.submit(until_two, one) for _ in range(8)]
            assert {each.result() for each in busy} == {200}, one.said()
            long = [clients.submit(one.stream, 800) for _ in range(2)]
            one.until(lambda: "draining" in {replica["state"] for replica in one.replicas()})
            assert [each.result() for each in long] == [800, 800], one.said()
        one.until(lambda: [replica["state"] for replica in one.replicas()].count("stopped") == 1)
        assert one.ask() in ("stop", "length")
