"""`kilocard gateway`: the gateway alone."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from kilocard.cli import running
from kilocard.cli.output import notes
from kilocard.cli.wiring import ClusterFile, gateway_of, supervisor_of
from kilocard.core.errors import UsageError
from kilocard.gateway.reloader import Reloader
from kilocard.gateway.server import Gateway
from kilocard.spec.load import Digests
from kilocard.tenancy.openness import exposures

#: more than that is a typing mistake
MOST_WORKERS = 256


def gateway(
    cluster: Annotated[Path, typer.Argument(help="The cluster file.", show_default=False)],
    port: Annotated[int | None, typer.Option(help="Listen here instead of gateway.listen's port.")] = None,
    admin_port: Annotated[int | None, typer.Option(help="Instead of gateway.admin's port.")] = None,
    workers: Annotated[str, typer.Option(help="Processes that share the port, or `auto`: one for each CPU.")] = "1",
) -> None:
    """Run the gateway over replicas that exist already (pools with `endpoints`, `dns` or `service`).

    The file is followed: a change is taken over while requests run, a bad one changes nothing.
    SIGTERM drains: /readyz fails, running requests finish within gateway.drain, then the process ends.
    """
    count = how_many(workers)
    file = ClusterFile(cluster, port, admin_port)
    digests: Digests = {}
    spec = file.read(digests)
    for warning in exposures(spec):
        notes.print(warning, style="yellow")
    started_by_nobody = [pool.name for pool in spec.pools.values() if not pool.exists]

    async def main(stopping: running.Stopping) -> None:
        one = gateway_of(spec) if count == 1 else supervisor_of(spec, count)
        if isinstance(one, Gateway):
            config = one.plane.config
        else:
            config = one.config
            stopping.before_the_end(one.kill)
        one.reloader = Reloader(config, file.read_again, one.take_over, digests)
        stopping.on_hangup(one.reloader.ask)
        await one.start()
        scheme = "http" if spec.gateway.tls is None else "https"
        notes.print(f"gateway {scheme}://{_show(spec.gateway.listen, one.port)}/v1")
        notes.print(f"admin   http://{_show(spec.gateway.admin, one.admin_port)}/state /metrics /readyz")
        if started_by_nobody:
            names = ", ".join(started_by_nobody)
            notes.print(
                f"No endpoints for {names}: `kilocard up` or `kilocard control` starts their replicas.", style="yellow"
            )
        await stopping.wait()
        notes.print("Draining (Ctrl-C again ends at once) …")
        await one.stop()

    running.run(main)


def how_many(workers: str) -> int:
    """`--workers`. Raises UsageError."""
    if workers == "auto":
        return len(os.sched_getaffinity(0))
    if not workers.isdecimal() or not 1 <= int(workers) <= MOST_WORKERS:
        raise UsageError(f"--workers {workers}: a number from 1 to {MOST_WORKERS}, or auto")
    return int(workers)


def _show(address: str, port: int) -> str:
    return f"{address.rpartition(':')[0]}:{port}"
