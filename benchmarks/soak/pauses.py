"""Waiting that ends with the run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable


async def rest(stopping: asyncio.Event, seconds: float) -> bool:
    """Wait; False: the run is over."""
    try:
        await asyncio.wait_for(stopping.wait(), seconds)
    except TimeoutError:
        return True
    return False


async def until(true: Callable[[], Awaitable[bool]], within: float) -> float | None:
    """Ask until it is so; the seconds that it took, None: it did not come."""
    began = time.monotonic()
    while not await true():
        if time.monotonic() - began > within:
            return None
        await asyncio.sleep(0.1)
    return time.monotonic() - began
