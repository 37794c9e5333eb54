"""`kilocard up`: a whole cluster on this machine."""

from __future__ import annotations

import asyncio
import importlib.util
import shutil
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from kilocard.backends.base import ReplicaStatus
from kilocard.cli import running
from kilocard.cli.output import notes, printable
from kilocard.cli.wiring import ClusterFile, LocalCluster, listening_on
from kilocard.core.errors import UsageError
from kilocard.gateway.reloader import Reloader
from kilocard.spec.load import Digests
from kilocard.spec.model import ClusterSpec, ModelSpec, PoolSpec, ReplicaRange
from kilocard.tenancy.openness import exposures

#: how often the states of replicas are looked at for news, in seconds
LOOK = 0.2


def builtin(emulated: bool) -> ClusterSpec:
    """The cluster of `kilocard up` without a file."""
    if emulated:
        pool = PoolSpec("emulated-v1", "emulated", replicas=ReplicaRange(3, 3))
        return ClusterSpec(models={"emulated": ModelSpec("emulated", {pool.name: 1})}, pools={pool.name: pool})
    pool = PoolSpec("smollm2-v1", "llamacpp", args={"parallel": 4}, replicas=ReplicaRange(2, 2))
    return ClusterSpec(models={"smollm2": ModelSpec("smollm2", {pool.name: 1})}, pools={pool.name: pool})


def has_llamacpp() -> bool:
    return importlib.util.find_spec("xllamacpp") is not None or shutil.which("llama-server") is not None


def up(
    cluster: Annotated[Path | None, typer.Argument(help="The cluster file. None: a built-in cluster.")] = None,
    port: Annotated[int | None, typer.Option(help="Listen here instead of gateway.listen's port (8000).")] = None,
    admin_port: Annotated[int | None, typer.Option(help="Instead of gateway.admin's port (8001).")] = None,
    emulated: Annotated[bool, typer.Option("--emulated", help="Built-in cluster of emulated engines.")] = False,
) -> None:
    """Run a whole cluster on this machine in the foreground: engines and the gateway in front of them.

    Without a file: two real llama.cpp replicas on the CPU (the extra `local` is needed; a small model is fetched
    once), else three emulated ones, which say so in every answer. Ctrl-C drains: requests that run may finish.
    """
    if cluster is not None and emulated:
        raise UsageError("--emulated is for the built-in cluster; a cluster file says `engine: emulated` in its pools")
    digests: Digests = {}
    file = None if cluster is None else ClusterFile(cluster, port, admin_port)
    if file is not None:
        spec = file.read(digests)
    else:
        spec = builtin(emulated or not has_llamacpp())
        if not emulated and not has_llamacpp():
            notes.print(
                "llama.cpp is not installed: these replicas are emulated and answer with filler text.", style="yellow"
            )
            notes.print("For real answers: pip install 'kilocard[local]'")
        spec = listening_on(spec, port, admin_port)
    for warning in exposures(spec):
        notes.print(warning, style="yellow")
    running.run(lambda stopping: _main(spec, file, digests, stopping))


async def _main(spec: ClusterSpec, file: ClusterFile | None, digests: Digests, stopping: running.Stopping) -> None:
    one = LocalCluster(spec)
    if file is not None:
        one.gateway.reloader = Reloader(one.gateway.plane.config, file.read_again, one.reload, digests)
        stopping.on_hangup(one.gateway.reloader.ask)
    start = asyncio.ensure_future(one.start())
    stop = asyncio.ensure_future(stopping.wait())
    await asyncio.wait({start, stop}, return_when=asyncio.FIRST_COMPLETED)
    if not start.done():
        start.cancel()
        await asyncio.gather(start, return_exceptions=True)
        return
    start.result()
    notes.print(f"engine logs in {_short(one.log_dir)}", soft_wrap=True)
    news = asyncio.ensure_future(_tell_news(one))
    try:
        await asyncio.wait({news, stop}, return_when=asyncio.FIRST_COMPLETED)
        if news.done():
            news.result()
    finally:
        news.cancel()
        notes.print(
            "Draining: running requests finish, then the engines stop. Ctrl-C again ends at once.", soft_wrap=True
        )
        await one.stop()


def _short(path: Path) -> str:
    """~ for the home folder, as people write it."""
    return f"~/{path.relative_to(Path.home())}" if path.is_relative_to(Path.home()) else str(path)


async def _tell_news(one: LocalCluster) -> None:
    """A line for each change of a replica's state; the address once somebody can answer."""
    told: dict[str, tuple[str, str]] = {}
    welcomed = False
    while True:
        for status in one.backend.replicas():
            news = (status.state.value, status.reason)
            if told.get(status.id) != news:
                told[status.id] = news
                notes.print(_news(status), soft_wrap=True)
        if not welcomed and one.gateway.plane.ready:
            welcomed = True
            _welcome(one)
        await asyncio.sleep(LOOK)


def _news(status: ReplicaStatus) -> Text:
    """No markup: the reason is an engine's own words, which have brackets as they like."""
    state, took = status.state.value, status.phases.total
    after = f" after {took:.1f} s" if state == "ready" and took is not None else ""
    why = f": {printable(status.reason)}" if status.reason else ""
    colour = {"ready": "green", "crash_loop": "red", "restarting": "yellow"}.get(state, "dim")
    return Text.assemble((f"{status.id} {state}{after}", colour), why)


def _welcome(one: LocalCluster) -> None:
    host = one.spec.gateway.listen.rpartition(":")[0]
    host = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]", "": "127.0.0.1"}.get(host, host)  # noqa: S104  # only compared
    scheme = "http" if one.spec.gateway.tls is None else "https"
    base = f"{scheme}://{host}:{one.gateway.port}/v1"
    model = next(iter(one.spec.models))
    key = " -H 'authorization: Bearer KEY'" if one.spec.tenants else ""
    notes.print(
        Text.assemble("\n", ("Ready:", "bold"), f" {base} (OpenAI-compatible), models: {', '.join(one.spec.models)}\n"),
        soft_wrap=True,
    )
    notes.print(
        f"  curl {base}/chat/completions -H 'content-type: application/json'{key} \\\n"
        f'    -d \'{{"model": "{model}", "messages": [{{"role": "user", "content": "What is a GPU?"}}]}}\'\n\n'
        f"  kilocard status --admin 127.0.0.1:{one.gateway.admin_port}\n",
        soft_wrap=True,  # commands are for copying
    )
