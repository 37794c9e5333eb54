"""Run a fleet until the process is told to stop."""

from __future__ import annotations

import asyncio
import gc
import signal
import sys

from kilocard.emulator.fleet import Fleet, consecutive
from kilocard.emulator.settings import Settings

#: Seconds that running requests have after SIGTERM.
GRACE = 5.0


async def serve(settings: Settings, *, host: str, port: int, count: int, load_time: float = 0.0) -> None:
    """Listen, print one address a line on stderr, end gracefully on SIGTERM or SIGINT, at once on the second.

    `load_time`: seconds before it listens.
    """
    ports = consecutive(port, count)
    stopping = asyncio.Event()
    asked = 0

    def stop() -> None:
        nonlocal asked
        asked += 1
        stopping.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    if load_time > 0:
        print(f"Loading, for {load_time:g} s.", file=sys.stderr, flush=True)
        await asyncio.wait([asyncio.ensure_future(stopping.wait())], timeout=load_time)
        if stopping.is_set():
            return
    fleet = Fleet(count, settings)
    urls = await fleet.start(host, ports)
    # What exists now stays; a full collection in mid-stream would be seen as a stall.
    gc.collect()
    gc.freeze()
    profile = settings.profile
    names = ", ".join(settings.models)
    print(f"Emulated engine, not a real model: serves {names} at the speed of {profile.name}.", file=sys.stderr)
    for url in urls:
        print(f"{url}/v1", file=sys.stderr)
    sys.stderr.flush()
    await stopping.wait()
    closing = asyncio.ensure_future(fleet.close(GRACE))
    while not closing.done():
        if asked > 1:
            await fleet.close(grace=0.0)
        await asyncio.wait([closing], timeout=0.1)
