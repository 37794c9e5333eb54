"""Waiting as a state machine's driver does: for news, or until its next deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def news_in_time(news: asyncio.Event, deadline: float | None, clock: Callable[[], float]) -> bool:
    """False: the deadline (of `clock`; None: there is none) came first. News from before the call do not count."""
    news.clear()
    try:
        async with asyncio.timeout(None if deadline is None else max(0.0, deadline - clock())):
            await news.wait()
    except TimeoutError:
        return False
    return True
