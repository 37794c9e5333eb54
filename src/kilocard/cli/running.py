"""Run something until it is told to stop: signals, log lines, the fast event loop."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import signal
from collections.abc import Awaitable, Callable

import uvloop
from rich.logging import RichHandler

from kilocard.cli.output import notes

#: more than that takes kernel memory for nothing
MOST_FILES = 1_048_576


class Stopping:
    """First SIGINT or SIGTERM: `asked` is set. The second: the process ends at once."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self._last: Callable[[], None] = lambda: None
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._signal)

    def _signal(self) -> None:
        if self.asked.is_set():
            self._last()
            notes.print("Stopped without waiting.")
            os._exit(130)
        self.asked.set()

    def before_the_end(self, what: Callable[[], None]) -> None:
        """Called where the process ends at once."""
        self._last = what

    def on_hangup(self, what: Callable[[], None]) -> None:
        """SIGHUP, which would end the process, does this instead."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, what)

    async def wait(self) -> None:
        await self.asked.wait()


def raise_file_limit() -> int:
    """Ask for all the file descriptors that we may have: each stream takes two, and a shell's usual limit is 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


def run(main: Callable[[Stopping], Awaitable[None]]) -> None:
    """Run `main` on uvloop. The garbage collector is told that what exists at the start will stay."""
    logging.basicConfig(
        level=os.environ.get("KILOCARD_LOG", "INFO").upper(),
        format="%(message)s",
        datefmt="%H:%M:%S",
        handlers=[RichHandler(console=notes, show_path=False, rich_tracebacks=False)],
    )

    async def body() -> None:
        # Connections are freed by reference counts; collecting rarely keeps pauses out of the data plane.
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 50)
        raise_file_limit()
        await main(Stopping())

    uvloop.run(body())
