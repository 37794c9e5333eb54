"""The real nginx, HAProxy and Envoy, each with the files that `kilocard render` writes for a cluster."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import yaml
from tests.free_ports import free_port
from tests.parts import part_missing

from kilocard.deploy.target import Files, RenderOptions
from kilocard.deploy.targets import target
from kilocard.spec.parse import parse

PROGRAMS = ("nginx", "haproxy", "envoy")
START = 20.0
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def program(name: str) -> str:
    if name == "envoy":
        here = CACHE / "kilocard-benchmarks" / "envoy" / "bin" / "envoy"
        return str(here) if here.exists() else part_missing("Envoy is not installed: scripts/test-rendered installs it")
    found = shutil.which(name) or shutil.which(f"/usr/sbin/{name}")
    return found or part_missing(f"{name} is not installed: apt-get install {name}")


def _argv(name: str, folder: Path) -> list[str]:
    return {
        # its compiled-in log may be another user's; it follows nobody's signals but ours
        "nginx": [
            *("-p", str(folder), "-c", str(folder / "nginx.conf")),
            *("-e", "stderr", "-g", f"daemon off; pid {folder}/nginx.pid;"),
        ],
        "haproxy": ["-db", "-f", str(folder / "haproxy.cfg")],
        "envoy": ["-c", str(folder / "envoy.yaml"), "--concurrency", "1", "--disable-hot-restart", "-l", "warning"],
    }[name]


@asynccontextmanager
async def proxy(name: str, replicas: Sequence[int], *, gateways: Sequence[int] = ()) -> AsyncIterator[int]:
    """Runs it before replicas on these ports, or before gateways; its own port."""
    port = free_port()
    endpoints = [f"http://127.0.0.1:{replica}" for replica in replicas] or ["http://127.0.0.1:1"]
    spec = parse(yaml.safe_load(f"pools: {{m: {{engine: external, endpoints: {endpoints}}}}}"))
    options = RenderOptions(
        listen=f"127.0.0.1:{port}",
        direct=not gateways,
        gateways=tuple(f"127.0.0.1:{gateway}" for gateway in gateways),
    )
    path = program(name)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        _write(target(name).render(spec, options), folder)
        with (folder / "log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(path, *_argv(name, folder), stdout=log, stderr=log)
            try:
                await _listening(port, process, folder / "log")
                yield port
            finally:
                if process.returncode is None:
                    process.terminate()
                    try:
                        await asyncio.wait_for(process.wait(), 5)
                    except TimeoutError:
                        process.kill()
                        await process.wait()


def _write(files: Files, folder: Path) -> None:
    folder.chmod(0o755)  # nginx's workers are another user
    for file, text in files.items():
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).write_text(text)


async def _listening(port: int, process: asyncio.subprocess.Process, log: Path) -> None:
    async with asyncio.timeout(START):
        while True:
            assert process.returncode is None, log.read_text()  # noqa: ASYNC240  # a few lines
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.02)
                continue
            writer.close()
            break
    await asyncio.sleep(0.3)  # the first health checks
