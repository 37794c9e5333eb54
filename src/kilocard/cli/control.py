"""`kilocard control`: the controller in a process of its own."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from kilocard.cli import running
from kilocard.cli.controlling import BACKENDS, ControlledCluster
from kilocard.cli.output import notes
from kilocard.cli.wiring import ClusterFile
from kilocard.controller.pages import Pages
from kilocard.core.errors import UsageError
from kilocard.gateway.config_status import ConfigStatus
from kilocard.gateway.reloader import Reloader
from kilocard.net.server import Server
from kilocard.spec.load import Digests
from kilocard.spec.units import Address, UnitError, address


def control(
    cluster: Annotated[Path, typer.Argument(help="The cluster file.", show_default=False)],
    backend: Annotated[str, typer.Option(help=f"Where replicas run: {', '.join(BACKENDS)}.")] = "local",
    admin: Annotated[
        list[str] | None,
        typer.Option(help="Admin address of a gateway; once for each of them. Default: gateway.admin of the file."),
    ] = None,
    ray_address: Annotated[
        str | None, typer.Option(help="The Ray cluster's head, or auto. Default: ray.address of the file.")
    ] = None,
    listen: Annotated[
        str | None, typer.Option(help="host:port for /metrics, /scaling and /healthz of its own. Default: none.")
    ] = None,
) -> None:
    """Start the replicas of a cluster and keep their number, for gateways that run elsewhere.

    Once a second it asks each gateway what it knows (GET /signals), decides for the pools with `scaling`, starts or
    drains replicas, and tells the gateways which there are (PUT /replicas). A second controller of the same file stands
    by until the first one ends. SIGTERM: local replicas end, those on Ray live on and are found again.
    """
    file = ClusterFile(cluster)
    digests: Digests = {}
    spec = file.read(digests)
    urls = [_url(each) for each in admin or [spec.gateway.admin]]
    place = None if listen is None else _address(listen)

    async def main(stopping: running.Stopping) -> None:
        one = ControlledCluster(spec, cluster, backend, urls, ray_address)
        reloader = Reloader(ConfigStatus(), file.read_again, one.reload, digests)
        server = Server(Pages(lambda: one.controller, one.registry), idle_timeout=30.0)
        if place is not None:
            await server.start(*place)
            notes.print(f"controller http://{place.host}:{server.port}/scaling /metrics /healthz")
        stop = asyncio.ensure_future(stopping.wait())
        lead = asyncio.ensure_future(one.lead(lambda who: notes.print(f"{who}: this controller stands by")))
        await asyncio.wait({stop, lead}, return_when=asyncio.FIRST_COMPLETED)
        if lead.done():
            lead.result()
            await one.start()
            stopping.on_hangup(reloader.ask)
            if spec.gateway.watch:
                reloader.watch()
            notes.print(f"controlling {', '.join(spec.pools)} ({backend}) for {', '.join(urls)}")
            await stop
            notes.print("Stopping (Ctrl-C again ends at once) …")
            await reloader.close()
        lead.cancel()
        await one.stop()
        await server.close(grace=1.0)

    running.run(main)


def _address(listen: str) -> Address:
    try:
        return address(listen, lowest_port=0)
    except UnitError as error:
        raise UsageError(f"--listen {error}") from error


def _url(admin: str) -> str:
    """http://host:port; an address that listens everywhere is asked here."""
    url = admin if "://" in admin else f"http://{admin}"
    for everywhere, here in (("//0.0.0.0:", "//127.0.0.1:"), ("//[::]:", "//[::1]:"), ("//:", "//127.0.0.1:")):
        url = url.replace(everywhere, here)
    return url.rstrip("/")
