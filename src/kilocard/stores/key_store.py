"""The embedded store's keys, followed while the gateway runs."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from kilocard.core.errors import StoreError
from kilocard.stores.embedded import file_of, read_only
from kilocard.tenancy.keys import Key, digest_of

_KEYS = "SELECT hash, tenant, expires, revoked IS NOT NULL FROM api_keys"


class KeyStore:
    """Reads only, and makes nothing: a store that is not there yet has no keys. One that was there and is gone, broken
    or made anew without a table of keys is a fault, not an order to lock everybody out.
    """

    name = "store"

    def __init__(self, path: Path) -> None:
        self.place = f"embedded store {path}"
        self._path = path
        self._open: sqlite3.Connection | None = None
        #: device and inode of the file that is open: another file may take its name
        self._file: tuple[int, int] | None = None
        self._version: int | None = None
        self._changes: int | None = None
        self._had_keys = False

    def look(self) -> tuple[Key, ...] | None:
        """All keys if something has changed, else None. Blocks. Raises StoreError while something is wrong."""
        try:
            return self._look()
        except (OSError, sqlite3.Error, ValueError) as error:
            self.close()
            raise StoreError(f"{self._path} can't be read: {getattr(error, 'strerror', None) or error}") from error
        except StoreError:
            self.close()
            raise

    def close(self) -> None:
        store, self._open = self._open, None
        self._file = self._version = self._changes = None
        if store is not None:
            store.close()

    def _look(self) -> tuple[Key, ...] | None:
        file = file_of(self._path)
        if file is None:
            if self._had_keys:
                raise StoreError(f"{self._path} is gone")
            return None
        if self._file != file:
            self.close()
            self._open = read_only(self._path)
            self._file = file
        store = self._open
        assert store is not None
        # Changes with each commit of anybody else, a ledger's for example, and costs next to nothing to ask for.
        (version,) = store.execute("PRAGMA data_version").fetchone()
        if version == self._version:
            return None
        if not store.execute("SELECT 1 FROM sqlite_master WHERE name = 'api_key_changes'").fetchone():
            if self._had_keys:
                raise StoreError(f"{self._path} has no keys any more; was it made anew?")
            self._version = version
            return None
        (changes,) = store.execute("SELECT count FROM api_key_changes").fetchone()
        keys = None
        if changes != self._changes:
            keys = tuple(Key(digest_of(row[0]), row[1], row[2], bool(row[3])) for row in store.execute(_KEYS))
        self._version, self._changes, self._had_keys = version, changes, True
        return keys
