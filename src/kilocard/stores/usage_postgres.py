"""The ledger in PostgreSQL (extra `postgres`). Several gateways may share it."""

from __future__ import annotations

from typing import Any

import msgspec
import psycopg
from psycopg.conninfo import conninfo_to_dict

from kilocard.core.errors import StoreError
from kilocard.stores.batches import Unwritable
from kilocard.stores.usage_sqlite import PRUNE_EVERY, PRUNE_ROWS
from kilocard.stores.usage_tables import (
    COLUMNS,
    DAILY,
    NAMES,
    POSTGRES,
    REQUESTS,
    add_to_daily,
    create_daily,
    line,
    report,
    row,
)  # fmt: skip
from kilocard.tenancy.usage import Record
from kilocard.tenancy.usage_report import Line, Question

#: a network that swallows packets is noticed: seconds to connect, milliseconds without an acknowledgement, and probes
#: where only an answer is to come (a machine's own default begins after two hours). The URL may say otherwise.
_DEFAULTS: dict[str, Any] = {
    "connect_timeout": 5, "tcp_user_timeout": 10_000, "keepalives_idle": 10, "keepalives_interval": 5,
    "keepalives_count": 3, "application_name": "kilocard",
}  # fmt: skip

_TABLES = (
    f"CREATE TABLE IF NOT EXISTS {REQUESTS} ("
    + ", ".join(f"{c.name} {c.postgres if 'NULL' in c.postgres else f'{c.postgres} NOT NULL'}" for c in COLUMNS)
    + ", PRIMARY KEY (request_id))",
    f"CREATE INDEX IF NOT EXISTS {REQUESTS}_ended ON {REQUESTS} (ended)",
    create_daily(POSTGRES),
)
#: gateways that start together create the tables one after the other (any number that nobody else uses)
_LOCK = "SELECT pg_advisory_xact_lock(7190423117)"


def _insert() -> str:
    """A whole batch, as JSON, in one statement: so rows and totals are there together or not at all.

    Whichever key finds a row that is there: a table that is partitioned by time has the time in its key.
    """
    types = {"timestamptz": "double precision"}
    fields = [(c.name, c.postgres.removesuffix(" NULL")) for c in COLUMNS]
    given = ", ".join(f"{name} {types.get(kind, kind)}" for name, kind in fields)
    values = ", ".join(f"to_timestamp({name})" if kind == "timestamptz" else name for name, kind in fields)
    return (
        f"WITH new AS (INSERT INTO {REQUESTS} ({NAMES}) SELECT {values} FROM json_to_recordset(%s::json) AS r ({given})"
        f" ON CONFLICT DO NOTHING RETURNING *) {add_to_daily(POSTGRES, 'new')}"
    )


_INSERT = _insert()
_PRUNE = (
    f"DELETE FROM {REQUESTS} WHERE request_id IN"
    f" (SELECT request_id FROM {REQUESTS} WHERE ended < to_timestamp(%s) ORDER BY ended LIMIT {PRUNE_ROWS})"
)
_NAMES = [column.name for column in COLUMNS]


class PostgresLedger:
    """A sink of batches. It connects when there is something to write: a database that is down stops nobody."""

    def __init__(self, url: str, keep: float = 0.0) -> None:
        """`keep`: seconds; 0: rows are kept for ever."""
        self._url = url
        self._keep = keep
        self._prune_at = 0.0
        self._connection: psycopg.Connection[Any] | None = None

    def prepare(self, records: list[Record], utc: float) -> str:
        rows = [dict(zip(_NAMES, row(record, utc), strict=True)) for record in records]
        # PostgreSQL has no NUL in texts: one would make the whole batch unwritable.
        return msgspec.json.encode(rows).decode().replace("\\u0000", "�")

    def write(self, prepared: str) -> None:
        try:
            connection = self._connected()
            connection.execute(_INSERT.encode(), (_writable(prepared, connection),))
        except (psycopg.DataError, psycopg.IntegrityError) as error:
            raise Unwritable(str(error)) from error
        except psycopg.Error:
            self.close()
            raise

    def tidy(self, now: float) -> None:
        if not self._keep or now < self._prune_at:
            return
        self._prune_at = now + PRUNE_EVERY
        try:
            while self._connected().execute(_PRUNE.encode(), (now - self._keep,)).rowcount == PRUNE_ROWS:
                pass
        except psycopg.Error:
            self.close()
            raise

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _connected(self) -> psycopg.Connection[Any]:
        if self._connection is None:
            connection = _connect(self._url)
            try:
                if not _has_tables(connection):
                    with connection.transaction():
                        connection.execute(_LOCK)
                        for table in _TABLES:
                            connection.execute(table.encode())
            except psycopg.Error:
                connection.close()
                raise
            self._connection = connection
        return self._connection


def _has_tables(connection: psycopg.Connection[Any]) -> bool:
    """Then nothing is created: IF NOT EXISTS too asks for the right to create, which not every role has."""
    known = connection.execute("SELECT to_regclass(%s), to_regclass(%s)", (REQUESTS, DAILY)).fetchone()
    return known is not None and None not in known


def _writable(text: str, connection: psycopg.Connection[Any]) -> str:
    """With a question mark for each character that a database in an older encoding (LATIN1 …) can't hold."""
    codec = connection.info.encoding
    if codec in ("utf-8", "ascii"):  # ascii: SQL_ASCII, which takes any bytes; psycopg sends it UTF-8
        return text
    return text.encode(codec, "replace").decode(codec)


def read(url: str, question: Question) -> list[Line]:
    """Ask the ledger. Changes nothing. Raises StoreError."""
    check(url)
    sql, parameters = report(POSTGRES, question)
    try:
        with _connect(url) as connection:
            connection.read_only = True
            known = connection.execute("SELECT to_regclass(%s)", (REQUESTS,)).fetchone()
            if known is None or known[0] is None:
                return []
            rows = connection.execute(sql.replace("?", "%s").encode(), parameters).fetchall()
    except (psycopg.Error, UnicodeError) as error:  # UnicodeError: a name that its encoding has not
        raise StoreError(f"The usage database can't be read: {error}") from error
    return [line(question, values) for values in rows]


def check(url: str) -> None:
    """Raises StoreError where this is no PostgreSQL URL, or a part of its password would be taken for something else,
    which every error would then repeat. Asks no server."""
    try:
        parts = conninfo_to_dict(url)
    except psycopg.Error:
        parts = None
    if parts is None or not url.startswith(("postgresql://", "postgres://")):
        raise StoreError(
            "The URL of the usage database (gateway.usage.database, --database) is no PostgreSQL URL: write "
            "postgresql://user@host/name"
        ) from None  # libpq's words repeat the URL
    host, name, port = (str(parts.get(key) or "") for key in ("host", "dbname", "port"))
    if "@" in host + name or not all(one.isdecimal() or not one for one in port.split(",")):
        raise StoreError(
            "The URL of the usage database (gateway.usage.database, --database) can't be taken apart: in its user and "
            "password write @ as %40, / as %2F, : as %3A"
        )


def _connect(url: str) -> psycopg.Connection[Any]:
    """Each statement is a transaction of its own. Nothing is prepared on the server, since poolers forget it."""
    return psycopg.connect(**{**_DEFAULTS, **conninfo_to_dict(url)}, autocommit=True, prepare_threshold=None)
