"""The embedded store: one SQLite file for what a gateway has to remember. Each user of it brings its own tables."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from pathlib import Path

from kilocard.core.errors import StoreError

#: another process may be writing: wait this long for it, in seconds
BUSY = 5.0


def connect(path: Path, *tables: str) -> sqlite3.Connection:
    """Open the store, make it if need be (readable by its owner alone), and run `tables` (CREATE … IF NOT EXISTS).

    WAL: readers and one writer don't block each other, and a killed process leaves a whole database. With
    synchronous=NORMAL a power cut may lose the last commits, never the file.
    The connection may be used by one thread at a time, whichever it is. Raises StoreError.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Only where there is none: to close a descriptor of an open database drops SQLite's own locks on it (POSIX).
        with contextlib.suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        # absolute: the name ":memory:" would be no file
        store = sqlite3.connect(path.absolute(), timeout=BUSY, isolation_level=None, check_same_thread=False)
        _in_turn(store, "PRAGMA journal_mode=WAL")
        store.execute("PRAGMA synchronous=NORMAL")
        for table in tables:
            _in_turn(store, table)
    except (OSError, sqlite3.Error) as error:
        raise StoreError(
            f"{path}: can't be used as the embedded store: {error}. Name another file with gateway.store."
        ) from error
    return store


def _in_turn(store: sqlite3.Connection, statement: str) -> None:
    """Where several processes make a file at once, SQLite says that it is locked and does not wait (turning WAL on, and
    a CREATE that began as a reader), so we do."""
    give_up = time.monotonic() + BUSY
    while True:
        try:
            store.execute(statement)
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > give_up:
                raise
        time.sleep(0.01)


def has_moved(path: Path, file: tuple[int, int] | None) -> bool:
    """Is `file` (see `file_of`) no longer what has this name? SQLite writes on into a file that was removed, or that
    another one was renamed over, and nobody will ever read that."""
    try:
        return file_of(path) != file
    except OSError:
        return False  # it can't be told now


def file_of(path: Path) -> tuple[int, int] | None:
    """Device and inode of what has this name; None: nothing has. Raises OSError where it can't be told."""
    try:
        info = path.stat()
    except FileNotFoundError:
        return None
    return info.st_dev, info.st_ino


def read_only(path: Path) -> sqlite3.Connection:
    """A store that is there already, to be read: nothing is made. Raises sqlite3.Error."""
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=BUSY, isolation_level=None, check_same_thread=False
    )
