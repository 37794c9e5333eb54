"""Who acts: of several controllers of one cluster, one."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Holder:
    """Who leads, for people. `since` is in seconds since 1970."""

    host: str
    pid: int
    since: float

    def __str__(self) -> str:
        return f"pid {self.pid} on {self.host} leads"


class Lease(Protocol):
    """The methods may block for a moment: call them in a thread. They raise OSError where the lease can't be asked."""

    def take(self, wall: float) -> bool:
        """Whether it is ours from now on. Repeated by who holds it, it says whether it still does."""

    def holder(self) -> Holder | None:
        """Who has it, as far as it is written."""

    def give_back(self) -> None:
        """Safe to repeat."""


class FileLease:
    """A lock on a file, which the kernel gives up when its process ends, however it ends.

    It holds among processes of one machine. On a network file system it is as good as that one's locks.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    def take(self, wall: float) -> bool:
        if self._descriptor is not None:
            if self._is_the_file(self._descriptor):
                return True
            self.give_back()  # somebody has removed the file: another one may lock a new one
        self.path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not self._is_the_file(descriptor):
                raise BlockingIOError
            text = json.dumps(asdict(Holder(socket.gethostname(), os.getpid(), wall))).encode()
            with contextlib.suppress(OSError):  # a full disk: the lock is ours all the same, nobody can read whose
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, text, 0)
        except BlockingIOError:
            os.close(descriptor)
            return False
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        return True

    def holder(self) -> Holder | None:
        """None: nobody has written there, or is about to."""
        with contextlib.suppress(OSError, ValueError, TypeError):
            return Holder(**json.loads(self.path.read_text()))
        return None

    def give_back(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            if self._is_the_file(descriptor):  # nobody else removes it; who waits with it open sees that it is gone
                self.path.unlink(missing_ok=True)
            os.close(descriptor)

    def _is_the_file(self, descriptor: int) -> bool:
        ours = os.fstat(descriptor)
        try:
            there = os.stat(self.path)
        except FileNotFoundError:
            return False
        return (ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino)
