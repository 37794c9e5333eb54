"""One engine process behind its guard (see guard.py), as asyncio sees it. POSIX only."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from kilocard.backends import guard
from kilocard.core.errors import BackendError

#: seconds that the guard may take to say the engine's process id (Python's start, on a machine under load)
GUARD_SECONDS = 20.0
#: from SIGQUIT to the guard, which kills everything below it, to killing guard and engine ourselves
KILL_SECONDS = 3.0


class Process(Protocol):
    """What a replica's life needs of its engine, be it one process or several on different machines."""

    #: of the engine's process (on this machine, the one that serves)
    pid: int

    async def wait(self) -> int:
        """Exit code as subprocess gives it, once it and all that it started are gone."""

    def terminate(self) -> None:
        """Ask it to exit."""

    def kill(self) -> None:
        """Make it exit, with everything that it started."""


#: (argv, whole environment, file descriptor of the log) to a running engine; raises BackendError or OSError
StartProcess = Callable[[Sequence[str], Mapping[str, str], int], Awaitable[Process]]


class EngineProcess:
    """A running engine. Made by `start`; `wait` gives its exit code once it and all its children are gone."""

    def __init__(self, guard_process: asyncio.subprocess.Process, link: socket.socket, pid: int) -> None:
        #: the engine's own process id, which is its process group's too
        self.pid = pid
        self._guard = guard_process
        self._link = link  # closing it, for whatever reason, makes the guard end the engine
        self._killer: asyncio.Task[None] | None = None

    @classmethod
    async def start(cls, argv: Sequence[str], env: Mapping[str, str], log: int) -> EngineProcess:
        """Start `argv` with exactly this environment; stdout and stderr go to the file descriptor `log`.

        A program that can't be run is no error here: it exits with 126 or 127 and says why in the log. Raises
        BackendError where no process can be made at all.
        """
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-I", "-S", guard.__file__, str(theirs.fileno()), str(os.getpid()), "--", *argv]
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                env=dict(env),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,  # Ctrl-C in the terminal is for kilocard, which then drains
            )
        except BaseException as error:
            ours.close()
            if isinstance(error, OSError):
                raise BackendError(f"can't start a process: {error.strerror}. Is the machine out of memory?") from error
            raise
        finally:
            theirs.close()
        try:
            pid = await read_pid(ours)
        except BaseException as error:
            ours.close()
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            if isinstance(error, TimeoutError | OSError | ValueError):
                raise BackendError(f"the guard of {argv[0]} did not start; see the replica's log") from error
            raise
        return cls(process, ours, pid)

    @property
    def exited(self) -> bool:
        return self._guard.returncode is not None

    async def wait(self) -> int:
        """Exit code as subprocess gives it: negative for a signal."""
        code = await self._guard.wait()
        if not self._swept():  # the guard itself was killed: the engine's children may still be there
            self._kill_group()
        self._link.close()
        return code

    def _swept(self) -> bool:
        try:
            return self._link.recv(64) == b"end\n"
        except OSError:
            return False

    def terminate(self) -> None:
        """SIGTERM to the engine alone."""
        self._tell(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL to the engine and everything that it started."""
        self._tell(signal.SIGQUIT)
        if self._killer is None:
            self._killer = asyncio.get_running_loop().create_task(self._make_sure())

    async def _make_sure(self) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._guard.wait(), KILL_SECONDS)
        if not self.exited:
            self._kill_group()
            self._tell(signal.SIGKILL)

    def _tell(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._guard.send_signal(number)

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)


async def read_pid(link: socket.socket) -> int:
    """What the guard says first. Nothing more is taken: where the engine ends at once, its "end" is right behind."""
    link.setblocking(False)
    loop = asyncio.get_running_loop()
    said = b""
    async with asyncio.timeout(GUARD_SECONDS):
        while not said.endswith(b"\n"):
            piece = await loop.sock_recv(link, 1)
            if not piece:
                raise ValueError("the guard ended early")
            said += piece
    return int(said.removeprefix(b"pid "))
