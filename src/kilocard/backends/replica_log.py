"""The log file of one replica: kept for one earlier run, bounded, read from its end.

The engine writes into the file itself (no pipe through us: a stalled reader would stall the engine, and the log
survives our death). Files are opened for appending, so emptying one that grew too large is safe while it is written.
"""

from __future__ import annotations

import os
from pathlib import Path

from kilocard.core.errors import BackendError

MAX_BYTES = 64 * 1024 * 1024
#: how much of a log that grew too large is kept in the earlier file
KEPT_BYTES = 8 * 1024 * 1024
#: most that is read at once, and how far back `tail` looks
READ_BYTES = 256 * 1024


class ReplicaLog:
    """`path` is this run's log, `earlier` the one before (or the older part of one that grew too large)."""

    def __init__(self, path: Path, max_bytes: int = MAX_BYTES) -> None:
        self.path = path
        self.earlier = path.with_name(path.name + ".1")
        self._max = max_bytes
        self._offset = 0
        self._partial = b""

    def rotate(self) -> int:
        """Begin a new run's log; returns a file descriptor to append to (the caller closes it). Raises BackendError."""
        self._offset, self._partial = 0, b""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if self.path.exists():
                os.replace(self.path, self.earlier)
            # 0o640: prompts may be in it
            return os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_TRUNC, 0o640)
        except OSError as error:
            raise BackendError(
                f"its log {self.path} can't be written: {error.strerror or error}; the environment variable "
                "KILOCARD_HOME names the folder that logs are in"
            ) from error

    def new_lines(self) -> list[str]:
        """Whole lines since the last call; at most READ_BYTES of them, the rest next time. Keeps the size bounded."""
        try:
            with self.path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                self._offset = min(self._offset, size)
                file.seek(self._offset)
                data = file.read(READ_BYTES)
        except OSError:
            return []
        self._offset += len(data)
        if size > self._max:
            self._shorten()
        *whole, self._partial = (self._partial + data).split(b"\n")
        self._partial = self._partial[-READ_BYTES:]
        return [line.decode("utf-8", "replace").rstrip("\r") for line in whole]

    def tail(self, count: int) -> tuple[str, ...]:
        """The last `count` lines, a last one without line end too; progress bars count as their last state."""
        try:
            with self.path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - READ_BYTES))
                data = file.read(READ_BYTES)
        except OSError:
            return ()
        lines = data.decode("utf-8", "replace").split("\n")
        if size > READ_BYTES:
            lines = lines[1:]  # cut in the middle
        shown = [line.rstrip("\r").rpartition("\r")[2] for line in lines]
        return tuple([line for line in shown if line.strip()][-count:])

    def _shorten(self) -> None:
        """Keep the end in the earlier file and empty this one. Lines written in between (microseconds) are lost."""
        with self.path.open("r+b") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - KEPT_BYTES))
            self.earlier.write_bytes(file.read(KEPT_BYTES))
            file.truncate(0)
        self._offset = 0
