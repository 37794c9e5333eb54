"""The ledger in the embedded store (SQLite)."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Any

from kilocard.core.errors import StoreError
from kilocard.stores.embedded import BUSY, connect, file_of, has_moved
from kilocard.stores.usage_tables import (
    COLUMNS,
    DAILY,
    NAMES,
    REQUESTS,
    SQLITE,
    add_sums,
    create_daily,
    line,
    report,
    row,
    sums,
)  # fmt: skip
from kilocard.tenancy.usage import Record
from kilocard.tenancy.usage_report import Line, Question

log = logging.getLogger("kilocard.records")

#: seconds between two looks for rows that are too old, and rows removed in one transaction
PRUNE_EVERY = 3600.0
PRUNE_ROWS = 10_000

_TABLES = (
    f"CREATE TABLE IF NOT EXISTS {REQUESTS} (seq INTEGER PRIMARY KEY, "
    + ", ".join(f"{c.name} {c.sqlite if 'NULL' in c.sqlite else f'{c.sqlite} NOT NULL'}" for c in COLUMNS)
    + ")",
    f"CREATE INDEX IF NOT EXISTS {REQUESTS}_ended ON {REQUESTS} (ended)",
    create_daily(SQLITE),
)
#: rows of one statement: each statement hands the interpreter to the event loop and asks for it back, which costs more
#: than the row. As many as an old SQLite has parameters for (999)
ROWS = 999 // len(COLUMNS)
_ADD_TO_DAILY = add_sums()
_LAST = f"SELECT coalesce(max(seq), 0) FROM {REQUESTS}"
_IS_THERE = f"SELECT 1 FROM {REQUESTS} WHERE seq > ? AND request_id = ?"
_PRUNE = (
    f"DELETE FROM {REQUESTS} WHERE seq IN"
    f" (SELECT seq FROM {REQUESTS} WHERE ended < ? ORDER BY ended LIMIT {PRUNE_ROWS})"
)


def _insert(rows: int) -> str:
    """Files of earlier versions refuse an id that they have."""
    values = f"({', '.join('?' * len(COLUMNS))})"
    return f"INSERT INTO {REQUESTS} ({NAMES}) VALUES {', '.join([values] * rows)} ON CONFLICT DO NOTHING"


_ONE, _MANY = _insert(1), _insert(ROWS)


class SqliteLedger:
    """A sink of batches. Several processes may write to one file. Raises StoreError where it can't be opened.

    No index keeps a batch from being written twice: that would be a sixth of a row's cost. A write that fails has
    written nothing, or all of it if the word that it failed is wrong; so after a failure the batch is looked for,
    behind the last row that was there before.
    """

    def __init__(self, path: Path, keep: float = 0.0) -> None:
        """`keep`: seconds; 0: rows are kept for ever."""
        self._path = path
        self._keep = keep
        self._prune_at = 0.0
        #: number of the last row before the write that has failed; None: the last one went well
        self._before_failure: int | None = None
        self._store: sqlite3.Connection | None = None
        #: the file that is open
        self._file: tuple[int, int] | None = None
        self._opened()

    def prepare(self, records: list[Record], utc: float) -> list[tuple[Any, ...]]:
        return [row(record, utc) for record in records]

    def write(self, prepared: list[tuple[Any, ...]]) -> None:
        """One transaction: its rows, and their days' totals."""
        store = self._opened()
        try:
            store.execute("BEGIN IMMEDIATE")
            if self._before_failure is None:
                (self._before_failure,) = store.execute(_LAST).fetchone()
            elif store.execute(_IS_THERE, (self._before_failure, prepared[0][0])).fetchone():
                prepared = []
            whole = len(prepared) // ROWS * ROWS
            for start in range(0, whole, ROWS):
                store.execute(_MANY, tuple(chain.from_iterable(prepared[start : start + ROWS])))
            store.executemany(_ONE, prepared[whole:])
            store.executemany(_ADD_TO_DAILY, sums(prepared))
            store.execute("COMMIT")
        except sqlite3.Error:
            self._drop()
            raise
        self._before_failure = None

    def tidy(self, now: float) -> None:
        if not self._keep or now < self._prune_at or self._store is None:
            return
        self._prune_at = now + PRUNE_EVERY
        while self._store.execute(_PRUNE, (now - self._keep,)).rowcount == PRUNE_ROWS:
            pass

    def close(self) -> None:
        self._drop()

    def _opened(self) -> sqlite3.Connection:
        """The file that has the name now, made anew if need be: rows in one that was removed are nobody's."""
        store = self._store
        if store is not None and has_moved(self._path, self._file):
            log.warning("%s was removed or replaced: the ledger goes on in the file that has its name now", self._path)
            self._drop()
            self._before_failure = store = None
        if store is None:
            store = self._store = connect(self._path, *_TABLES)
            with contextlib.suppress(OSError):
                self._file = file_of(self._path)
        return store

    def _drop(self) -> None:
        """What was not committed is undone; the next write opens the file anew."""
        store, self._store = self._store, None
        if store is not None:
            store.close()


def read(path: Path, question: Question) -> list[Line]:
    """Ask a ledger, which a gateway may be writing to. Changes nothing. Raises StoreError."""
    if not path.exists():
        raise StoreError(f"{path}: there is no store (yet): a gateway makes it. --cluster and --store name another.")
    sql, parameters = report(SQLITE, question)
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=BUSY)) as store:
            known = store.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (DAILY,)).fetchone()
            rows = store.execute(sql, parameters).fetchall() if known else []
    except sqlite3.Error as error:
        raise StoreError(f"{path}: usage can't be read: {error}") from error
    return [line(question, values) for values in rows]
