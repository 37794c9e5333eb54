"""Start and stop the processes of a measurement, and only those.

Each child is pinned to one core before it runs, leads its own process group (so that stopping it reaches what it
started), and is told by the kernel to end when the benchmark dies.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


class ChildError(RuntimeError):
    """A child did not start or died; the message carries the end of its log."""


class Child:
    """One process (and what it starts), pinned to `core`; None leaves it where it is."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        core: int | None,
        log: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        def before_exec() -> None:
            if core is not None:
                os.sched_setaffinity(0, {core})
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

        self.argv = list(argv)
        self.log = log
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                self.argv,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {})},
                cwd=cwd,
                start_new_session=True,
                preexec_fn=before_exec,  # single-threaded parent
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait_until(self, ready: Callable[[], bool], timeout: float) -> None:
        """Poll `ready` until it is true. Raises ChildError when the child dies or `timeout` seconds pass."""
        deadline = time.monotonic() + timeout
        while not ready():
            if self.process.poll() is not None:
                raise ChildError(f"{self.argv[0]} exited with {self.process.returncode}:\n{self.log_tail()}")
            if time.monotonic() > deadline:
                raise ChildError(f"{self.argv[0]} was not ready within {timeout:.0f} s:\n{self.log_tail()}")
            time.sleep(0.05)

    def log_tail(self, size: int = 2000) -> str:
        return self.log.read_bytes()[-size:].decode("utf-8", "replace")

    def stop(self, grace: float = 3.0) -> None:
        for sig in (signal.SIGTERM, signal.SIGKILL):
            # its own group (start_new_session above); the second signal is for what the leader left behind in it
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, sig)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(grace)

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


#: below those that the kernel gives to outgoing connections, so that a server that was killed gets its own back; in any
#: order, since other benchmarks may run, and each once, since who asked for one may not have bound it yet
_PORTS = iter(random.sample(range(12_000, 20_000), 8_000))


def free_port() -> int:
    """One that nobody listens on, and that was not given before. Raises ChildError where there is none left."""
    for port in _PORTS:
        with socket.socket() as one, contextlib.suppress(OSError):
            one.bind(("127.0.0.1", port))
            return port
    raise ChildError("no free port between 12000 and 20000 is left")


def keep_port(port: int) -> socket.socket:
    """Nobody else is given this port while the socket is open; a server of ours may listen on it, die, and return."""
    kept = socket.socket()
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # bound twice is allowed where only one listens
    kept.bind(("127.0.0.1", port))
    return kept


def answers(url: str, headers: Mapping[str, str] | None = None) -> bool:
    """True when `url` answers 200."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=dict(headers or {})), timeout=1.0) as r:
            return bool(r.status == 200)
    except (urllib.error.URLError, OSError, ValueError):
        return False


def two_cores() -> tuple[int | None, int | None]:
    """(core of the proxy, core of load and upstream); (None, None) where there is only one."""
    cores = sorted(os.sched_getaffinity(0))
    return (cores[0], cores[-1]) if len(cores) > 1 else (None, None)
