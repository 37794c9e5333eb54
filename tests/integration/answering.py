"""Waits until a process that a test started answers."""

from __future__ import annotations

import asyncio

from kilocard.core.errors import UpstreamError
from kilocard.net.client import fetch


async def until_answers(url: str, seconds: float = 60.0) -> None:
    """AssertionError if there is no 200 within `seconds`."""
    end = asyncio.get_running_loop().time() + seconds
    while True:
        try:
            if (await fetch(url, timeout=20)).status == 200:
                return
        except UpstreamError:
            pass
        assert asyncio.get_running_loop().time() < end, f"{url} did not answer within {seconds:g} s"
        await asyncio.sleep(0.05)
