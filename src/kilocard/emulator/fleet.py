"""Many emulated engines in one process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from kilocard.core.errors import UsageError
from kilocard.emulator.replica import Replica
from kilocard.emulator.settings import Settings


def consecutive(first: int, count: int) -> list[int]:
    """Ports of `count` engines; `first` 0: any free ones. Raises UsageError where there are not so many."""
    if count < 1:
        raise UsageError(f"count is {count}; at least one engine must run")
    if not 0 <= first <= 65_536 - count:
        raise UsageError(
            f"{count} engines from port {first} on need ports {first} to {first + count - 1}: ports are 1 to 65535, "
            "or 0 for any free one"
        )
    return [first + i if first else 0 for i in range(count)]


class Fleet:
    """`count` replicas, each with its own engine, step loop and port."""

    def __init__(self, count: int, settings: Settings) -> None:
        self.replicas = [Replica(settings, index) for index in range(count)]

    async def start(self, host: str = "127.0.0.1", ports: Sequence[int] | int = 0) -> list[str]:
        """`ports`: one for each, or the first of consecutive ones, or 0 for any free ones. Returns the URLs.

        Raises BackendError when one can't be had; then none listens.
        """
        count = len(self.replicas)
        if isinstance(ports, int):
            ports = consecutive(ports, count)
        if len(ports) != count:
            raise UsageError(f"{len(ports)} ports for {count} engines")
        try:
            return [await replica.start(host, port) for replica, port in zip(self.replicas, ports, strict=True)]
        except BaseException:
            await self.close(grace=0.0)
            raise

    async def close(self, grace: float = 5.0) -> None:
        """Stop listening; running requests have `grace` seconds."""
        await asyncio.gather(*(replica.close(grace) for replica in self.replicas))


@asynccontextmanager
async def running_emulators(
    count: int, settings: Settings | None = None, *, host: str = "127.0.0.1", ports: Sequence[int] | int = 0
) -> AsyncIterator[list[str]]:
    """Emulated engines for the time of the block; gives their URLs. For tests and `kilocard up --emulated`.

    async with running_emulators(3, Settings(models=("m",), speed=10)) as urls:
        ...
    """
    fleet = Fleet(count, settings or Settings())
    urls = await fleet.start(host, ports)
    try:
        yield urls
    finally:
        await fleet.close(grace=0.0)
