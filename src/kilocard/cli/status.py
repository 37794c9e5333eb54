"""`kilocard status`: the fleet, once."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import msgspec
import typer
from rich.markup import escape

from kilocard.cli import status_scaling, status_tenants
from kilocard.cli.fleet_table import BUSY, COLOURS, FEW, WORST, choose, left_out, pools_table, replicas_table
from kilocard.cli.output import print_json, results
from kilocard.core.errors import KilocardError, UpstreamError, UsageError
from kilocard.net.client import fetch

#: of replicas that take requests, now or when they have done some of what they have
SERVING = {"ready", "slow_start", *BUSY}
#: what GET /state has, whatever the version
PARTS = ("gateway", "models", "pools", "replicas")


def status(
    admin: Annotated[str, typer.Option(help="The gateway's admin address.")] = "127.0.0.1:8001",
    everyone: Annotated[
        bool,
        typer.Option(
            "--all",
            help=f"Every replica and tenant. Default: of more than {FEW}, the {WORST} in most trouble.",
        ),
    ] = False,
    pool: Annotated[str | None, typer.Option(help="Only the replicas of this pool.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document (GET /state).")] = False,
) -> None:
    """Show every model and replica as the gateway sees it now.

    Exit 0: every model has a replica that can serve, or may have none until somebody asks. Exit 1: some model has
    none, or the gateway can't be reached.
    """
    state = read_state(admin)
    if json:
        print_json(state)
    else:
        show(state, everyone=everyone, pool=pool)
    served = {replica["pool"] for replica in state["replicas"] if replica["state"] in SERVING}
    served |= {each["id"] for each in state["pools"] if each.get("sleeps")}
    idle = [model["id"] for model in state["models"] if not served.intersection(model["pools"])]
    if idle:
        raise KilocardError(f"no replica can serve: {', '.join(idle)}")


def read_state(admin: str) -> dict[str, Any]:
    """GET /state. Raises KilocardError that says what to do."""
    url = admin if "://" in admin else f"http://{admin}"
    try:
        answer = asyncio.run(fetch(f"{url.rstrip('/')}/state", timeout=5.0))
    except UpstreamError as error:
        raise KilocardError(
            f"no gateway answers at {admin} ({error.message}). Is `kilocard up` or `kilocard gateway` running? "
            "--admin takes the address of its admin listener (gateway.admin)."
        ) from error
    if answer.status != 200:
        raise KilocardError(f"{admin} answered {answer.status}: is that the admin address, not the data address?")
    try:
        state = msgspec.json.decode(answer.body)
    except msgspec.DecodeError:
        state = None
    if not isinstance(state, dict) or not all(part in state for part in PARTS):
        raise KilocardError(
            f"{admin}/state is not a kilocard gateway's. --admin takes the address of its admin listener "
            "(gateway.admin)."
        )
    return state


def show(state: dict[str, Any], *, everyone: bool = False, pool: str | None = None) -> None:
    """`everyone`: also where they are many. `pool`: only its replicas."""
    gateway = state["gateway"]
    ready = "[green]ready[/]" if gateway["ready"] else "[red]not ready[/]"
    results.print(
        f"gateway {ready}, up {gateway['uptime_s']:.0f} s, {gateway['in_flight']} requests under way, "
        f"{gateway['held']} of them held, {gateway['connections']} connections",
        markup=True,
    )
    shared = gateway.get("limit_store")
    if shared is not None:
        how = (
            "[green]shared[/]"
            if shared["state"] == "shared"
            else f"[red]{shared['state']}[/]: {escape(shared['problem'])}"
        )
        results.print(f"limits {how}, {shared['gateways']} gateways, {escape(shared['address'])}", markup=True)
    for worker in gateway.get("workers", ()):
        colour = COLOURS.get(worker["state"], "green" if worker["state"] == "serving" else "dim")
        results.print(
            f"worker {worker['worker']} [{colour}]{worker['state']}[/], pid {worker['pid']}, "
            f"up {worker['uptime_s']:.0f} s, {worker['in_flight'] or 0} requests under way, "
            f"{worker['connections'] or 0} connections, {worker['restarts']} restarts",
            markup=True,
        )
    for model in state["models"]:
        pools = ", ".join(f"{name} ({weight})" for name, weight in model["pools"].items())
        results.print(f"model [bold]{escape(model['id'])}[/]: {escape(pools)}, policy {model['policy']}", markup=True)
    if pool is not None and pool not in {each["id"] for each in state["pools"]}:
        raise UsageError(f"there is no pool {pool!r}; there are {', '.join(each['id'] for each in state['pools'])}")
    replicas = [each for each in state["replicas"] if pool in (None, each["pool"])]
    shown = choose(replicas, everyone=everyone)
    if len(shown) < len(replicas):
        results.print(pools_table(replicas))
        results.print()
    results.print(replicas_table(shown, results.width))
    if len(shown) < len(replicas):
        results.print(left_out(replicas, len(shown)))
    if scaling := state.get("scaling"):
        for line in status_scaling.lines(scaling):
            results.print(line, markup=True, soft_wrap=True)
    if tenants := state.get("tenants"):
        near = status_tenants.choose(tenants, everyone=everyone)
        results.print(status_tenants.tenants_table(near))
        if len(near) < len(tenants):
            results.print(f"{len(tenants) - len(near):,} more tenants have more left. --all shows them.")
