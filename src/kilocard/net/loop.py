"""The event loop that shells run on."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

import uvloop

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Like asyncio.run, on uvloop."""
    return uvloop.run(main)
