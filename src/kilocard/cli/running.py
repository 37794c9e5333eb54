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
from rich.console import Console
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


def log_handler(console: Console) -> logging.Handler:
    """To people in columns and colours. A file or a pipe has no width: there what is one line stays one, for grep."""
    if console.is_terminal:
        handler: logging.Handler = RichHandler(console=console, show_path=False, rich_tracebacks=False)
        words = "%(message)s"
    else:
        handler = logging.StreamHandler(console.file)
        words = "%(asctime)s %(levelname)-8s %(message)s"
    handler.setFormatter(logging.Formatter(words, datefmt="%H:%M:%S"))
    return handler


def run(main: Callable[[Stopping], Awaitable[None]]) -> None:
    """Run `main` on uvloop. The garbage collector is told that what exists at the start will stay."""
    logging.basicConfig(level=os.environ.get("KILOCARD_LOG", "INFO").upper(), handlers=[log_handler(notes)])

    async def body() -> None:
        # Connections are freed by reference counts; collecting rarely keeps pauses out of the data plane.
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 50)
        raise_file_limit()
        await main(Stopping())

    uvloop.run(body())
