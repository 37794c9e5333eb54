"""`kilocard up FILE` as a user runs it: a process of its own, seen only through its two ports."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml
from openai import AsyncOpenAI, OpenAI

from free_ports import free_port

#: seconds: two engines that import torch on two shared cores
START = 300.0
STOP = 60.0
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # loopback, whatever proxy is configured


def page(url: str) -> str:
    """Raises OSError (urllib's errors are) where nobody answers, or not with 200."""
    with _DIRECT.open(url, timeout=10) as answer:
        return str(answer.read().decode())


def metric(text: str, name: str) -> float:
    """Sum of a metric's series on a page; 0 without any, since counters with labels appear when they first count."""
    return sum(float(value) for value in re.findall(rf"^{re.escape(name)}(?:{{[^}}]*}})? (\S+)", text, re.MULTILINE))


def until(what: str, condition: Callable[[], Any], seconds: float, pause: float = 0.05) -> Any:
    """The first true value of `condition`; AssertionError with the last one after `seconds`."""
    end = time.monotonic() + seconds
    while True:
        if value := condition():
            return value
        assert time.monotonic() < end, f"not within {seconds:.0f} s: {what} (last: {value!r})"
        time.sleep(pause)


class Up:
    """A running cluster."""

    def __init__(self, spec: dict[str, Any], folder: Path) -> None:
        self.port, self.admin_port = free_port(), free_port()
        self.file = folder / "cluster.yaml"
        self.file.write_text(yaml.safe_dump(spec))
        self.log = folder / "up.log"
        program = Path(sys.executable).parent / "kilocard"
        ports = ["--port", str(self.port), "--admin-port", str(self.admin_port)]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [str(program), "up", str(self.file), *ports],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env={**os.environ, "COLUMNS": "200"},
                start_new_session=True,
            )
        self.pids: set[int] = set()

    # ---- what it says of itself

    def admin(self, path: str) -> str:
        return page(f"http://127.0.0.1:{self.admin_port}{path}")

    def replicas(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.admin("/state"))["replicas"]
        self.pids.update(pid for replica in found if (pid := replica.get("pid")))
        return found

    def ready(self) -> list[dict[str, Any]]:
        return [replica for replica in self.replicas() if replica["state"] == "ready"]

    def wait_ready(self, count: int, seconds: float = START) -> list[dict[str, Any]]:
        def look() -> list[dict[str, Any]] | None:
            assert self.process.poll() is None, f"kilocard up ended with {self.process.returncode}\n{self.said()}"
            with contextlib.suppress(OSError):
                ready = self.ready()
                return ready if len(ready) >= count else None
            return None

        try:
            return list(until(f"{count} replicas are ready", look, seconds, pause=0.3))
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.said()}") from None

    def in_flight(self) -> int:
        return sum(replica["in_flight"] for replica in self.replicas())

    def said(self) -> str:
        """The end of its output and of its engines' logs."""
        parts = [f"--- kilocard up\n{_tail(self.log)}"]
        with contextlib.suppress(OSError):
            for replica in self.replicas():
                if replica.get("log_file"):
                    parts.append(f"--- {replica['id']} {replica['state']}\n{_tail(Path(replica['log_file']))}")
        return "\n".join(parts)

    # ---- its clients: openai's own, without retries of their own

    def client(self) -> OpenAI:
        return OpenAI(base_url=f"http://127.0.0.1:{self.port}/v1", api_key="unused", max_retries=0, timeout=120)

    def async_client(self) -> AsyncOpenAI:
        return AsyncOpenAI(base_url=f"http://127.0.0.1:{self.port}/v1", api_key="unused", max_retries=0, timeout=120)

    # ---- its end

    def stop(self) -> int:
        """Ctrl-C, then the exit code."""
        with contextlib.suppress(OSError):
            self.replicas()  # to know all processes
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(STOP)

    def left_over(self) -> list[int]:
        """Engine processes that are still there: a replica's pid is its process group too."""
        return [pid for pid in self.pids if _group_exists(pid)]


@contextlib.contextmanager
def up(spec: dict[str, Any], folder: Path) -> Iterator[Up]:
    cluster = Up(spec, folder)
    try:
        yield cluster
    finally:
        try:
            if cluster.process.poll() is None:
                cluster.stop()
        finally:
            if cluster.process.poll() is None:
                cluster.process.kill()
                cluster.process.wait()
            for pid in cluster.left_over():
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)


def _group_exists(pid: int) -> bool:
    try:
        os.killpg(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _tail(path: Path, lines: int = 25) -> str:
    try:
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
    except OSError as error:
        return str(error)
