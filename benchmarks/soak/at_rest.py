"""When all is over everything is back at zero; what is not after a while is a leak."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence

from benchmarks.soak.cluster import Emulator, GatewayProcess, open_files


async def comes_to_rest(gateway: GatewayProcess, emulators: Sequence[Emulator], files: int, within: float) -> list[str]:
    """What is left after `within` seconds. `files`: open ones before the load."""
    deadline = time.monotonic() + within
    while True:
        left = await _not_at_rest(gateway, emulators, files)
        if not left or time.monotonic() > deadline:
            return left
        await asyncio.sleep(0.25)


async def _not_at_rest(gateway: GatewayProcess, emulators: Sequence[Emulator], files: int) -> list[str]:
    state = await gateway.state()
    now = state["gateway"]
    left = [
        f"gateway: {name} is {now[name]}"
        for name in ("in_flight", "held", "buffered_bytes", "connections")
        if now[name]
    ]
    left += [
        f"{one['id']}: in_flight is {one['in_flight']}"
        for one in state["replicas"] + state["tenants"]
        if one["in_flight"]
    ]
    # Half open: the next request is its trial, and there is none any more.
    left += [
        f"{one['id']}: state is {one['state']}"
        for one in state["replicas"]
        if one["state"] not in ("ready", "slow_start", "half_open")
    ]
    for emulator in emulators:
        stats = await emulator.stats()
        left += [
            f"emulator {emulator.name}: {name} is {stats[name]}"
            for name in ("in_flight", "running", "waiting")
            if stats[name]
        ]
    page = await gateway.metrics()
    for name in ("kilocard_open_connections", "kilocard_buffered_bytes"):
        match = re.search(rf"^{name} (\S+)$", page, re.M)
        if match is None or float(match.group(1)):
            left.append(f"{name} is {match and match.group(1)}")
    for name, labels in re.findall(r"^(kilocard_records_waiting)\{(.*)\} (?!0)\S+$", page, re.M):
        left.append(f"{name} {labels} is not 0")
    open_now = open_files(gateway.pids())
    if open_now > files:
        left.append(f"the gateway has {open_now} files open, {files} before the load")
    return left
