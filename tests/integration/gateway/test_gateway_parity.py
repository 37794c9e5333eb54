"""A real `kilocard gateway` before emulated engines that fail: its log through every driver, its counts all along."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import re
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from stub_engine import run

from kilocard.core.errors import KilocardError
from kilocard.dispatch.record import answer_list, from_list
from kilocard.emulator.fleet import running_emulators
from kilocard.emulator.settings import Settings
from kilocard.net.client import fetch
from kilocard.routing.registry import POLICIES
from kilocard.sim.recorded import recorded_requests
from kilocard.spec.load import load
from parity_drivers import DRIVERS

TEXT = "Somebody asks about the weather, and would like to have an answer that is neither long nor wrong. " * 40


def cluster(policy: str, urls: list[str], log: Path, hold: int = 30) -> str:
    """A cluster file."""
    return json.dumps({
        "gateway": {
            "listen": "127.0.0.1:0", "admin": "127.0.0.1:0", "drain": "2s", "scrape_interval": "100ms",
            "record": {"path": str(log), "prefixes": True}, "timeouts": {"first_token": "2s", "idle": "1s"},
        },
        "models": {"m": {
            "policy": policy, "pools": {"p": 1}, "hold": {"max": hold, "timeout": "1s"},
            "eject": {"consecutive": 2, "backoff": "300ms"}, "hedge": {"after": "300ms", "budget": 0.5, "max_load": 1},
        }},
        "pools": {"p": {"engine": "vllm", "endpoints": urls, "args": {"max-num-seqs": 4}, "max_in_flight": 6}},
    })  # fmt: skip


class Running:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.port = self.admin = 0

    async def started(self) -> None:
        assert self.process.stderr is not None
        async with asyncio.timeout(60):  # on a machine that is busy elsewhere a process takes its time
            while not self.admin:
                line = (await self.process.stderr.readline()).decode()
                assert line, "it ended"
                if found := re.search(r"(gateway|admin) +http://[^:]*:(\d+)/", line):
                    setattr(self, "port" if found[1] == "gateway" else "admin", int(found[2]))
            while (await fetch(f"http://127.0.0.1:{self.admin}/readyz", timeout=5)).status != 200:
                await asyncio.sleep(0.02)

    async def chat(self, text: str, tokens: int, seconds: float = 10.0) -> int:
        """The status; 0 where the connection was cut or the client left after `seconds`."""
        body = {"model": "m", "stream": True, "max_tokens": tokens, "messages": [{"role": "user", "content": text}]}
        try:
            async with asyncio.timeout(seconds):
                answer = await fetch(
                    f"http://127.0.0.1:{self.port}/v1/chat/completions", method="POST",
                    headers=[("content-type", "application/json")], body=json.dumps(body).encode(), timeout=15,
                )  # fmt: skip
                return answer.status
        except (KilocardError, TimeoutError):
            return 0

    async def counts(self) -> tuple[int, int, int]:
        """Requests that came, ended and are under way, all of one moment."""
        page = (await fetch(f"http://127.0.0.1:{self.admin}/metrics", timeout=30)).body.decode()

        def total(name: str) -> int:
            lines = re.findall(rf"^{name}(?:{{.*}})? (\S+)$", page, re.MULTILINE)
            return int(sum(map(float, lines)))

        return (
            total("kilocard_received_requests_total"),
            total("kilocard_requests_total"),
            total("kilocard_requests_under_way"),
        )

    async def reload(self) -> None:
        answer = await fetch(f"http://127.0.0.1:{self.admin}/reload", method="POST", timeout=30)
        assert answer.status == 200, answer.body


@contextlib.asynccontextmanager
async def gateway(file: Path) -> AsyncIterator[Running]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "kilocard", "gateway", str(file), stderr=asyncio.subprocess.PIPE,
        env=os.environ | {"KILOCARD_HOME": str(file.parent)},
    )  # fmt: skip
    one = Running(process)
    try:
        await one.started()
        yield one
        process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(process.communicate(), 60)
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def fault(url: str, kind: str, **more: Any) -> None:
    answer = await fetch(
        url + "/admin/fault", method="POST", body=json.dumps({"kind": kind} | more).encode(), timeout=5
    )
    assert answer.status == 200, answer.body


async def trouble(one: Running, urls: list[str], change: Callable[[], None]) -> int:
    """Waves of conversations while engines fail in each way, clients leave, and the file changes. Requests sent."""
    rng = random.Random(7)
    looks: list[tuple[int, int, int]] = []

    async def watch() -> None:
        while True:
            looks.append(await one.counts())
            await asyncio.sleep(0.03)

    async def client(number: int) -> None:
        text = f"{number % 5}: {TEXT[: 700 * rng.randrange(1, 6)]}"
        await one.chat(text, rng.randrange(5, 40), 0.05 if number % 9 == 0 else 10.0)

    watching = asyncio.ensure_future(watch())
    waves: list[Any] = [
        None,
        fault(urls[0], "error", count=6),
        fault(urls[1], "die_mid_stream", count=4),
        fault(urls[2], "hang", count=4),
        fault(urls[0], "refuse", duration_s=0.5),
    ]
    for number, goes_wrong in enumerate(waves):
        if goes_wrong is not None:
            await goes_wrong
        if number == 3:
            change()
            await one.reload()
        await asyncio.gather(*(client(40 * number + each) for each in range(40)))
    watching.cancel()
    async with asyncio.timeout(30):
        while (await one.counts())[2]:  # of clients that have left
            await asyncio.sleep(0.02)
    last = await one.counts()
    for came, ended, there in [*looks, last]:
        assert came == ended + there, "GW-1: who came has ended or is under way"
    assert any(there for *_, there in looks)
    return last[0]


@pytest.mark.parametrize("policy", POLICIES)
def test_inv_25_the_log_of_a_real_gateway_is_answered_alike_by_every_driver(policy: str, tmp_path: Path) -> None:
    """INV-25, GW-1, GW-2."""
    file, log = tmp_path / "cluster.yaml", tmp_path / "decisions.jsonl"
    other = list(POLICIES)[list(POLICIES).index(policy) - 1]

    def write(text: str) -> None:
        file.write_text(text)

    async def story() -> int:
        settings = Settings(models=("m",), speed=20, max_num_seqs=4)
        async with running_emulators(3, settings) as urls:
            file.write_text(cluster(policy, urls, log))
            (tmp_path / "first.yaml").write_text(file.read_text())
            async with gateway(file) as one:
                return await trouble(one, urls, lambda: write(cluster(other, urls, log, hold=10)))

    came = run(story(), 150)
    head, *lines = [json.loads(line) for line in log.read_text().splitlines()]
    spec = load(tmp_path / "first.yaml")
    for driver in DRIVERS:
        made = driver(spec, head["seed"])
        for line in lines:
            assert [line[0], *map(answer_list, made.tell(from_list(line[0])))] == line, driver
    seen = {part[0] for line in lines for part in line}
    assert seen >= {"arrived", "first_content", "finished", "failed", "abandoned", "scraped", "probed", "reconfigured",
                    "send", "hold", "hedge", "probe"}  # fmt: skip
    assert sum(line[0][0] == "arrived" for line in lines) == came
    assert all(line[0][-1] is not None for line in lines if line[0][0] == "arrived"), "prompts' beginnings are there"
    assert len(recorded_requests([head, *lines])) == came
