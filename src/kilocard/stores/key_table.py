"""The embedded store's table of keys: what `kilocard keys` writes and gateways follow. Hashes only, never keys."""

from __future__ import annotations

import hashlib
import secrets
import sqlite3
from collections.abc import Iterator
from typing import NamedTuple

from kilocard.core.errors import StoreError
from kilocard.tenancy.keys import PREFIX

#: `api_key_changes` has one row: the number of changes so far. Triggers count, so that a change by hand is noticed too
TABLES = (
    """CREATE TABLE IF NOT EXISTS api_keys (
        id TEXT PRIMARY KEY, tenant TEXT NOT NULL, name TEXT NOT NULL, hash TEXT NOT NULL UNIQUE,
        created REAL NOT NULL, expires REAL, revoked REAL)""",
    "CREATE TABLE IF NOT EXISTS api_key_changes (count INTEGER NOT NULL)",
    "INSERT INTO api_key_changes SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM api_key_changes)",
    """CREATE TRIGGER IF NOT EXISTS api_keys_added AFTER INSERT ON api_keys
        BEGIN UPDATE api_key_changes SET count = count + 1; END""",
    """CREATE TRIGGER IF NOT EXISTS api_keys_changed AFTER UPDATE ON api_keys
        BEGIN UPDATE api_key_changes SET count = count + 1; END""",
    """CREATE TRIGGER IF NOT EXISTS api_keys_removed AFTER DELETE ON api_keys
        BEGIN UPDATE api_key_changes SET count = count + 1; END""",
)
#: what a new key begins with, so that people and scanners for leaked secrets recognise it
KEY_BEGINS = "kc-"


class Row(NamedTuple):
    """One key. Times are Unix seconds."""

    id: str
    tenant: str
    #: what people call it
    name: str
    #: sha256:<64 hex digits>
    hash: str
    created: float
    expires: float | None
    revoked: float | None


def hash_of(key: str) -> str:
    """What is stored of a key: the hash of the very bytes that a client sends."""
    return PREFIX + hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


def new_key() -> tuple[str, str]:
    """A key and its id, which stands in it: `kc-<id>-<256 random bits>`."""
    name = secrets.token_hex(4)
    return f"{KEY_BEGINS}{name}-{secrets.token_urlsafe(32)}", name


def add(store: sqlite3.Connection, row: Row) -> None:
    """Raises StoreError (also for an id or hash that is there already)."""
    try:
        store.execute("INSERT INTO api_keys VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    except sqlite3.Error as error:
        raise StoreError(f"the key can't be stored: {error}") from error


def rows(store: sqlite3.Connection) -> Iterator[Row]:
    """All keys, oldest first. Raises StoreError."""
    try:
        yield from map(
            Row._make,
            store.execute(
                "SELECT id, tenant, name, hash, created, expires, revoked FROM api_keys ORDER BY created, id"
            ),
        )
    except sqlite3.Error as error:
        raise StoreError(f"the keys can't be read: {error}") from error


def revoke(store: sqlite3.Connection, key_id: str, now: float) -> None:
    """From now on it is refused; one that is revoked already stays as it is. Raises StoreError."""
    try:
        store.execute("UPDATE api_keys SET revoked = ? WHERE id = ? AND revoked IS NULL", (now, key_id))
    except sqlite3.Error as error:
        raise StoreError(f"the key can't be revoked: {error}") from error
