"""What lives as long as a gateway and is put together elsewhere: keys, counts, ledgers, logs."""

from __future__ import annotations

from typing import Protocol


class Part(Protocol):
    """Joined with `Gateway.parts.append`; started in that order before the port opens, closed in the reverse one."""

    async def start(self) -> None:
        """Raises KilocardError where the gateway must not start without it."""

    async def close(self) -> None:
        """After the last request has ended."""
