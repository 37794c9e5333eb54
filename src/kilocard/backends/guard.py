"""Stands between kilocard and one engine process, so that no engine outlives kilocard, whatever kills it.

    python -m kilocard.backends.guard LINK PARENT -- ENGINE ARGUMENTS…

LINK is a socket's file descriptor shared with the parent, whose process id is PARENT. The guard writes "pid N" into
it, waits, and writes "end" when nothing is left below it. The engine runs in a process group of its own.

- The parent is gone (LINK ends, or we have another parent): the engine is asked to exit, a second later everything
  below us is killed.
- The engine exits: what it left behind is killed, and we end the same way (same code, same signal).
- SIGTERM, SIGINT, SIGHUP: passed on to the engine alone, since engines stop their children in order.
- SIGQUIT: everything below us is killed at once.

On Linux the engine dies with us too (PR_SET_PDEATHSIG), and children that left the engine's group still have us as
their last parent (PR_SET_CHILD_SUBREAPER). Elsewhere the group and LINK do the work.

One runs beside every engine: standard library only, no asyncio, nothing of kilocard. The parent runs this file by
its path with `-I -S`, which starts in 10 ms.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import sys
import time
from types import FrameType
from typing import NoReturn

#: from asking the engine to exit, when the parent is gone, to killing it
PATIENCE = 1.0
#: how often we look whether our parent is still the same one (LINK tells at once; this is for copies of it that
#: other children of the parent may hold)
LOOK = 0.5
PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
#: wait until there is an engine to pass them on to, and in the engine until it no longer has our handlers: else one
#: that comes right at the start is lost
HELD = (*PASSED_ON, signal.SIGQUIT)
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def prctl(option: int, value: int) -> None:
    """Linux only; a failure costs only the second line of defence."""
    if sys.platform != "linux":
        return
    try:
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)
    except (ImportError, OSError, AttributeError):
        pass


class Guard:
    def __init__(self, link: int, parent: int, argv: list[str]) -> None:
        self.link = link
        self.parent = parent
        self.argv = argv
        self.engine = 0
        self.status: int | None = None

    def run(self) -> NoReturn:
        wake, waker = os.pipe()
        for end in (wake, waker):
            os.set_blocking(end, False)
        os.set_inheritable(self.link, False)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        signal.pthread_sigmask(signal.SIG_BLOCK, HELD)
        for number in PASSED_ON:
            signal.signal(number, self._pass_on)
        signal.signal(signal.SIGQUIT, self._kill_now)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        self.engine = self._start()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD)
        with contextlib.suppress(OSError):
            os.write(self.link, f"pid {self.engine}\n".encode())
        self._watch(wake)
        self._sweep()
        with contextlib.suppress(OSError):
            os.write(self.link, b"end\n")
        self._end_like_the_engine()

    def _start(self) -> int:
        guard = os.getpid()
        child = os.fork()
        if child:
            with contextlib.suppress(OSError):
                os.setpgid(child, child)  # both sides do it, so that it is done whoever runs first
            return child
        try:
            signal.set_wakeup_fd(-1)
            for number in (*PASSED_ON, signal.SIGQUIT, signal.SIGCHLD, signal.SIGPIPE):
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD)
            with contextlib.suppress(OSError):
                os.setpgid(0, 0)
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() == guard:
                os.execvp(self.argv[0], self.argv)  # noqa: S606  # starting the engine is this file's purpose
        except FileNotFoundError:
            sys.stderr.write(f"kilocard: {self.argv[0]}: the program was not found\n")
            os._exit(127)
        except OSError as error:
            sys.stderr.write(f"kilocard: {self.argv[0]}: can't be run: {error.strerror}\n")
        finally:
            os._exit(126)

    def _watch(self, wake: int) -> None:
        """Until the engine has exited."""
        poll = select.poll()
        poll.register(wake, select.POLLIN)
        poll.register(self.link, select.POLLIN)
        kill_at: float | None = None
        while not self._reap():
            ready = {fd for fd, _ in poll.poll(LOOK * 1000 if kill_at is None else 50)}
            if wake in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(wake, 4096)
            gone = self.link in ready or os.getppid() != self.parent
            if kill_at is None and gone:
                poll.unregister(self.link)
                self._signal_engine(signal.SIGTERM)
                kill_at = time.monotonic() + PATIENCE
            elif kill_at is not None and time.monotonic() >= kill_at:
                self._kill_all()

    def _reap(self) -> bool:
        """Collect what has exited; True once the engine has."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                return self.status is not None
            if pid == self.engine:
                self.status = status

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        self._signal_engine(number)

    def _kill_now(self, number: int, frame: FrameType | None) -> None:
        self._kill_all()

    def _signal_engine(self, number: int) -> None:
        if self.engine and self.status is None:
            with contextlib.suppress(OSError):
                os.kill(self.engine, number)

    def _kill_all(self) -> None:
        if self.engine:
            with contextlib.suppress(OSError):
                os.killpg(self.engine, signal.SIGKILL)
        for pid in children():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)

    def _sweep(self) -> None:
        """The engine is gone: kill what it left. Grandchildren become our children as their parents die."""
        for _ in range(200):
            self._kill_all()
            try:
                while os.waitpid(-1, os.WNOHANG) != (0, 0):
                    pass
            except ChildProcessError:
                return
            time.sleep(0.005)

    def _end_like_the_engine(self) -> NoReturn:
        code = os.waitstatus_to_exitcode(self.status or 0)
        if code < 0:
            with contextlib.suppress(ValueError, OSError):  # no core file of ours on top of the engine's
                resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            with contextlib.suppress(ValueError, OSError):
                signal.signal(-code, signal.SIG_DFL)
            os.kill(os.getpid(), -code)
            code = 128 - code  # the signal does not end us: say it as shells do
        os._exit(code)


def children() -> list[int]:
    """Our direct children, where the system tells (Linux)."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
            return [int(pid) for pid in file.read().split()]
    except OSError:
        return []


def main(arguments: list[str]) -> NoReturn:
    if len(arguments) < 4 or arguments[2] != "--":
        sys.exit("usage: python -m kilocard.backends.guard LINK PARENT -- ENGINE ARGUMENTS…")
    Guard(int(arguments[0]), int(arguments[1]), arguments[3:]).run()


if __name__ == "__main__":
    main(sys.argv[1:])
