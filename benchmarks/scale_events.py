"""Replicas come and go under streaming load, and no request may fail.

    python -m benchmarks.scale_events [--events 20] [--most 6] [--logs FOLDER]

Starts `kilocard up` with emulated engines that load for a second, as processes of their own, and turns the load up and
down with clients that stream in a closed loop, until so many replicas were started or drained. Every answer has to be
whole: status 200, all its tokens, usage, [DONE]. Exit 1, with the evidence, if one was not, if a replica was added
later than LATE seconds after its condition held, or if an engine is left at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from kilocard.core.errors import KilocardError
from kilocard.net.client import Response, fetch

#: what clients ask for, in tokens of 5 ms: most little, the first FEW of them so much that an engine which is told to
#: stop, and lets what runs go on for 5 s as engines do, would cut it
SHORT, LONG = 40, 1400
#: clients at the top and at the bottom of the load: at the top many of them wait, whatever the pool's size
MANY, FEW = 40, 4
#: seconds from the condition that holds to the start of a replica
LATE = 2.0
HEADERS = (("content-type", "application/json"),)
BODY = {
    "model": "m", "stream": True, "ignore_eos": True, "stream_options": {"include_usage": True},
    "messages": [{"role": "user", "content": "Count."}],
}  # fmt: skip

#: more than 1 waits for 1 s: one more; at most 0.5 for 1 s: one fewer
CLUSTER: dict[str, Any] = {
    "models": {"m": {"pools": {"p": 1}, "slow_start": "1s"}},
    "pools": {
        "p": {
            "engine": "emulated",
            "args": {"load-time": 1, "max-num-seqs": 4},
            "replicas": {"min": 1, "max": 4},
            "scaling": {"up": {"above": 1, "for": "1s"}, "down": {"below": 0.5, "for": "1s"}, "cooldown": "0s"},
            "drain": {"grace": "30s"},
        }
    },
}


@dataclass
class Result:
    answers: int = 0
    #: what was wrong with those that were not whole
    failures: Counter[str] = field(default_factory=Counter)
    started: int = 0
    drained: int = 0
    #: seconds from the condition that held to the decision, of each replica that was added for it
    late: list[float] = field(default_factory=list)
    #: processes of engines that were there after the end
    left: list[int] = field(default_factory=list)

    @property
    def events(self) -> int:
        return self.started + self.drained

    def problems(self, events: int) -> list[str]:
        """Empty: all is well."""
        found = [f"{count} × {what}" for what, count in self.failures.items()]
        if self.events < events:
            found.append(f"only {self.events} of {events} replicas came or went")
        if not self.started or not self.drained or not self.late:
            found.append("the pool did not both grow and shrink")
        if max(self.late, default=0.0) > LATE:
            found.append(f"a replica was added {max(self.late):.1f} s after its condition held")
        if self.left:
            found.append(f"engines are left: {self.left}")
        return found


class Cluster:
    """A `kilocard up`, seen through its ports."""

    def __init__(self, file: Path, port: int, admin_port: int, process: asyncio.subprocess.Process) -> None:
        self._file = file
        self.url, self.admin = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{admin_port}"
        self.process = process
        self.pids: set[int] = set()

    async def page(self, path: str) -> Any:
        """JSON of the admin address."""
        answer = await fetch(self.admin + path, timeout=10)
        return json.loads(answer.body)

    async def get(self, path: str) -> Response:
        """What clients see."""
        return await fetch(self.url + path, timeout=10)

    def write(self, spec: dict[str, Any]) -> None:
        """Another cluster file, which it follows."""
        new = self._file.with_suffix(".new")
        new.write_text(yaml.safe_dump(spec))
        new.replace(self._file)

    async def replicas(self) -> dict[str, dict[str, Any]]:
        """Those that are there, by id."""
        rows = {row["id"]: row for row in (await self.page("/state"))["replicas"]}
        self.pids.update(row["pid"] for row in rows.values() if row.get("pid"))
        return {id: row for id, row in rows.items() if row["state"] != "stopped"}

    async def pool(self) -> dict[str, Any]:
        [row] = (await self.page("/scaling"))["pools"]
        return dict(row)

    async def ask(self, tokens: int = SHORT) -> str:
        """ "": the answer was whole."""
        url, body = f"{self.url}/v1/chat/completions", json.dumps(BODY | {"max_tokens": tokens}).encode()
        try:
            answer = await fetch(url, method="POST", headers=HEADERS, body=body, timeout=60)
        except KilocardError as error:
            return type(error).__name__
        return fault(answer.status, answer.body, tokens)


def fault(status: int, body: bytes, tokens: int) -> str:
    """What is wrong with a stream; "" nothing."""
    if status != 200:
        return f"status {status}: {body[:200]!r}"
    events = [event.removeprefix(b"data: ") for event in body.split(b"\n\n") if event]
    if not events or events.pop() != b"[DONE]":
        return "no [DONE]"
    chunks = [json.loads(event) for event in events]
    if any("error" in chunk for chunk in chunks):
        return "an error event"
    usage = [chunk["usage"] for chunk in chunks if chunk.get("usage")]
    if not usage or usage[-1]["completion_tokens"] != tokens:
        return f"{usage[-1]['completion_tokens'] if usage else 'no'} tokens"
    return ""


class Load:
    """Clients in a closed loop; `clients` says how many there are. The first `long` of them ask for much."""

    def __init__(self, cluster: Cluster, result: Result, long: int = FEW) -> None:
        self._long = long
        self._cluster = cluster
        self._result = result
        self._tasks: list[asyncio.Task[None]] = []
        self._wanted = 0

    def clients(self, count: int) -> None:
        """Those that are too many go when they have their answer."""
        self._wanted = count
        self._tasks = [task for task in self._tasks if not task.done()]
        for number in range(count):
            if number >= len(self._tasks):
                self._tasks.append(asyncio.ensure_future(self._client(number)))

    async def end(self) -> None:
        self._wanted = 0
        await asyncio.gather(*self._tasks)

    async def _client(self, number: int) -> None:
        while number < self._wanted:
            what = await self._cluster.ask(LONG if number < self._long else SHORT)
            self._result.answers += 1
            if what:
                self._result.failures[what] += 1


def free_ports() -> tuple[int, int]:
    with socket.socket() as one, socket.socket() as two:
        one.bind(("127.0.0.1", 0))
        two.bind(("127.0.0.1", 0))
        return one.getsockname()[1], two.getsockname()[1]


@contextlib.asynccontextmanager
async def cluster_up(
    folder: Path, spec: dict[str, Any], result: Result, *, at_least: int = 1
) -> AsyncIterator[Cluster]:
    """`kilocard up` with so many replicas ready; afterwards nothing of it may be left."""
    file = folder / "cluster.yaml"
    file.write_text(yaml.safe_dump(spec))
    port, admin_port = free_ports()
    command = [sys.executable, "-m", "kilocard", "up", str(file), "--port", str(port), "--admin-port", str(admin_port)]
    with (folder / "up.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            env={**os.environ, "KILOCARD_HOME": str(folder), "COLUMNS": "200"},
        )  # fmt: skip
    cluster = Cluster(file, port, admin_port, process)
    try:
        async with asyncio.timeout(60):
            while process.returncode is None:
                with contextlib.suppress(KilocardError):
                    rows = await cluster.replicas()
                    if sum(row["state"] == "ready" for row in rows.values()) >= at_least:
                        break
                await asyncio.sleep(0.1)
        yield cluster
    finally:
        with contextlib.suppress(KilocardError, ProcessLookupError):
            await cluster.replicas()  # to know all processes
            process.send_signal(signal.SIGINT)
        try:
            await asyncio.wait_for(process.wait(), 40)
        except TimeoutError:
            process.kill()
        result.left = left_over(cluster.pids)


def left_over(pids: set[int]) -> list[int]:
    """Engines' processes that are still there."""
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()]


async def until(cluster: Cluster, replicas: int, seconds: float) -> bool:
    """So many replicas serve, and no other is there."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        rows = await cluster.replicas()
        if len(rows) == replicas and all(row["state"] in ("ready", "slow_start", "full") for row in rows.values()):
            return True
        await asyncio.sleep(0.2)
    return False


async def scale(events: int, folder: Path, spec: dict[str, Any] | None = None) -> Result:
    """Load up, load down, until so many replicas have come and gone."""
    result = Result()
    spec = spec or CLUSTER
    pool = spec["pools"]["p"]
    least, most = pool["replicas"]["min"], pool["replicas"]["max"]
    held_for = 1.0
    async with cluster_up(folder, spec, result) as cluster:
        load = Load(cluster, result)
        while result.events < events and cluster.process.returncode is None:
            before, began = result.events, time.monotonic()
            for clients, replicas in ((MANY, most), (FEW, least)):
                load.clients(clients)
                await until(cluster, replicas, 30.0)
                row = await cluster.pool()
                result.started, result.drained = row["started"], row["drained"]
            above = [entry for entry in row["journal"] if entry["reason"] == "above"]
            new = [entry for entry in above if entry["ago_s"] < time.monotonic() - began]
            result.late += [entry["numbers"]["above_for_s"] - held_for for entry in new]
            if result.events == before:
                break
        await load.end()
    return result


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale_events", description=__doc__)
    parser.add_argument("--events", type=int, default=20, help="replicas that come or go")
    parser.add_argument("--most", type=int, default=6, help="replicas at the top of the load")
    parser.add_argument("--logs", type=Path, help="keep what the processes write in this folder")
    a = parser.parse_args()
    spec = deepcopy(CLUSTER)
    spec["pools"]["p"]["replicas"]["max"] = a.most
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kilocard-scale-") as scratch:
        folder = a.logs or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        result = asyncio.run(scale(a.events, folder, spec))
        problems = result.problems(a.events)
        print(
            f"{result.started} replicas came and {result.drained} went in {time.monotonic() - began:.0f} s; "
            f"{result.answers} streams, {sum(result.failures.values())} of them not whole; decided "
            f"{max(result.late, default=0.0):.2f} s after the condition held at the latest"
        )
        for problem in problems:
            print(f"PROBLEM: {problem}")
        if problems:
            print((folder / "up.log").read_text()[-4000:])
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
