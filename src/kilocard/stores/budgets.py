"""Budgets in the embedded store (SQLite): what tenants used of a day and a month, through restarts."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
from collections.abc import Mapping
from pathlib import Path

from kilocard.core.errors import StoreError
from kilocard.stores.embedded import connect, file_of, has_moved
from kilocard.tenancy.budget import BudgetKey
from kilocard.tenancy.periods import periods

_TABLE = (
    "CREATE TABLE IF NOT EXISTS budgets (tenant TEXT NOT NULL, model TEXT NOT NULL, period TEXT NOT NULL,"
    " tokens INTEGER NOT NULL, PRIMARY KEY (tenant, model, period)) WITHOUT ROWID"
)
_ADD = (
    "INSERT INTO budgets VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET tokens = tokens + excluded.tokens"
    " RETURNING tokens"
)

_AT_LEAST = "INSERT INTO budgets VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET tokens = max(tokens, excluded.tokens)"

log = logging.getLogger("kilocard.budgets")


class SqliteBudgets:
    """A BudgetStore. Only sums are written, so several processes may share a file. Opens it when it is first used."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._store: sqlite3.Connection | None = None
        #: the file that is open
        self._file: tuple[int, int] | None = None
        #: what was there last. Sums only grow: a file that has less is another one
        self._known: dict[BudgetKey, int] = {}

    def load(self, wall: float) -> dict[BudgetKey, int]:
        """All that is kept. Periods that were over before yesterday are removed. `wall`: Unix seconds."""
        dates = periods(wall)
        try:
            store = self._open()
            rows = store.execute("SELECT tenant, model, period, tokens FROM budgets").fetchall()
            closed = [row[:3] for row in rows if dates.closed(row[2])]
            if closed:
                store.execute("BEGIN IMMEDIATE")
                store.executemany("DELETE FROM budgets WHERE tenant = ? AND model = ? AND period = ?", closed)
                store.execute("COMMIT")
        except sqlite3.Error as error:
            raise self._broken("read", error) from error
        self._known = {BudgetKey(*row[:3]): row[3] for row in rows if not dates.closed(row[2])}
        return dict(self._known)

    def add(self, used: Mapping[BudgetKey, int]) -> dict[BudgetKey, int]:
        """All of it in one transaction, or nothing."""
        try:
            store = self._open()
            store.execute("BEGIN IMMEDIATE")
            totals = {key: store.execute(_ADD, (*key, tokens)).fetchone()[0] for key, tokens in used.items()}
            store.execute("COMMIT")
        except sqlite3.Error as error:
            raise self._broken("written", error) from error
        self._known |= totals
        return totals

    def close(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            store.close()

    def _open(self) -> sqlite3.Connection:
        """The file that has the name now. One that is new, or comes out of a backup, gets what was used since."""
        if self._store is not None and has_moved(self._path, self._file):
            log.warning("%s was removed or replaced: budgets are written to the file that has its name now", self._path)
            self.close()
        if self._store is None:
            store = self._store = connect(self._path, _TABLE)
            with contextlib.suppress(OSError):
                self._file = file_of(self._path)
            if self._known:
                store.execute("BEGIN IMMEDIATE")
                store.executemany(_AT_LEAST, [(*key, tokens) for key, tokens in self._known.items()])
                store.execute("COMMIT")
        return self._store

    def _broken(self, what: str, error: sqlite3.Error) -> StoreError:
        self.close()  # undoes what was not committed; the next call opens the file anew
        return StoreError(f"{self._path}: budgets can't be {what}: {error}.")
