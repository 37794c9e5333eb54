"""`kilocard keys`: API keys for tenants."""

from __future__ import annotations

import re
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from kilocard.cli.output import notes, print_json, printable, results
from kilocard.cli.wiring import read_cluster, store_path
from kilocard.core.errors import KilocardError, NotFound, StoreError, UsageError
from kilocard.deploy.yaml_text import yaml_text
from kilocard.spec.model import ClusterSpec
from kilocard.spec.units import UnitError, duration
from kilocard.spec.vocabulary import NAME, NAME_ADVICE
from kilocard.stores import key_table
from kilocard.stores.embedded import connect, read_only
from kilocard.stores.key_table import KEY_BEGINS, Row, hash_of, new_key
from kilocard.stores.keyring import wall_clock
from kilocard.stores.keys_file import KeysFile
from kilocard.tenancy.keys import PREFIX

#: what people call the sources that are files
_FILES = {"cluster": "cluster file", "keys_file": "keys file"}

app = typer.Typer(no_args_is_help=True, help="API keys for tenants: shown once, stored only as hashes.")

ClusterOption = Annotated[
    Path | None, typer.Option(help="The cluster file: its store is used, and its tenants are checked.")
]
StoreOption = Annotated[
    Path | None, typer.Option(help="The embedded store's file, instead of the cluster file's or the default one.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


@app.callback()
def keys() -> None:
    """API keys for tenants: shown once, stored only as hashes."""


@app.command()
def create(
    tenant: Annotated[str, typer.Argument(help="Name of the tenant.")],
    name: Annotated[str, typer.Option(help="What you call the key, for the list.")] = "",
    expires: Annotated[str | None, typer.Option(help="It is refused after this long, e.g. 30d.")] = None,
    cluster: ClusterOption = None,
    store: StoreOption = None,
    no_store: Annotated[bool, typer.Option("--no-store", help="Only print it, for the cluster or keys file.")] = False,
    json: JsonOption = False,
) -> None:
    """Make a new key. It is printed once; the store, or a file, gets its hash only.

    Running gateways with that store take it over within about a second.
    """
    spec = None if cluster is None else read_cluster(cluster)
    if spec is not None and tenant not in spec.tenants:
        known = ", ".join(spec.tenants) or "none"
        raise UsageError(f"{cluster} declares no tenant {tenant!r} (it has: {known}); add it under `tenants`")
    _check_names(tenant, name)
    if no_store and expires is not None:
        raise UsageError("--expires needs the store: a hash in a file never expires")
    now = wall_clock()
    until = None if expires is None else now + _seconds(expires)
    key, key_id = new_key()
    row = Row(key_id, tenant, name, hash_of(key), now, until, None)
    if not no_store:
        path = _path(spec, store)
        with _opened(path) as opened:
            key_table.add(opened, row)
        notes.print(f"Stored in {path} (hash only).", soft_wrap=True)
    if json:
        print_json({"tenant": tenant, "key": key, **_shown(row, "none" if no_store else "store")})
        return
    print(key)
    notes.print(
        "That is the key; it is not shown again. For the cluster file, where you keep no store:\n", soft_wrap=True
    )
    notes.print(yaml_text({"tenants": {tenant: {"keys": [row.hash]}}}), soft_wrap=True, end="")


@app.command(name="list")
def list_(cluster: ClusterOption = None, store: StoreOption = None, json: JsonOption = False) -> None:
    """Show the keys that are known: never the keys themselves. With --cluster those of its files too."""
    spec = None if cluster is None else read_cluster(cluster)
    path = _path(spec, store)
    found = [_shown(row, "store") for row in _stored(path)]
    problem: KilocardError | None = None
    if spec is not None:
        found += _in_cluster(spec)
        try:
            found += _in_keys_file(spec)
        except KilocardError as error:
            problem = error  # said behind the others: they are good whatever is wrong with that file
    if json:
        print_json({"store": str(path), "keys": found})
    elif found:
        _show(found)
    else:
        notes.print(f"No keys in {path}.", soft_wrap=True)
    if problem is not None:
        raise problem


@app.command()
def revoke(
    which: Annotated[str, typer.Argument(metavar="ID|HASH|-", help="Its id, its hash, or - for a key on stdin.")],
    cluster: ClusterOption = None,
    store: StoreOption = None,
) -> None:
    """Refuse a key from now on: running gateways do within about two seconds, also where it stands in a file too.

    A leaked key is better not written on a command line: `kilocard keys revoke - < file`.
    """
    spec = None if cluster is None else read_cluster(cluster)
    path = _path(spec, store)
    text = (_line_of_stdin() if which == "-" else which).strip()
    if not text:
        raise UsageError(
            "nothing came on stdin: give the key in one line" if which == "-" else "give the key's id or hash, or -"
        )
    # A key may be of another kind than ours: what comes on stdin is one whatever it looks like.
    wanted = hash_of(text) if text.startswith(KEY_BEGINS) or (which == "-" and not text.startswith(PREFIX)) else text
    now = wall_clock()
    for row in _stored(path):
        if wanted.lower() in (row.id, row.hash):
            with _opened(path) as opened:
                key_table.revoke(opened, row.id, now)
            notes.print(f"Revoked {row.id} of {row.tenant}.")
            return
    for key in () if spec is None else chain(_in_cluster(spec), _in_keys_file(spec)):
        if key["hash"] == wanted.lower():
            # The store's word against the file's: the strictest counts.
            with _opened(path) as opened:
                key_table.add(
                    opened, Row(new_key()[1], key["tenant"], "revoked in a file", key["hash"], now, None, now)
                )
            notes.print(
                f"Revoked a key of {key['tenant']}; take its hash out of the {_FILES[key['source']]} too.",
            )
            return
    raise NotFound(
        f"{path} has no such key (`kilocard keys list` shows those that it has; --cluster looks in files too)"
    )


def _seconds(text: str) -> float:
    try:
        seconds = duration(text)
    except UnitError as error:
        raise UsageError(f"--expires {error}") from error
    if seconds <= 0:
        raise UsageError("--expires has to be more than 0, e.g. 30d")
    return seconds


def _path(spec: ClusterSpec | None, store: Path | None) -> Path:
    return store if store is not None else store_path(spec or ClusterSpec())


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    """The store, to be written. Raises StoreError that names it."""
    with closing(connect(path, *key_table.TABLES)) as opened:
        try:
            yield opened
        except StoreError as error:
            raise StoreError(f"{path}: {error.message}") from error


def _stored(path: Path) -> list[Row]:
    """A store that is not there has no keys. A look makes and changes nothing: it may be no store of ours."""
    if not path.exists():
        return []
    try:
        with closing(read_only(path)) as opened:
            there = opened.execute("SELECT 1 FROM sqlite_master WHERE name = 'api_keys'").fetchone()
            return list(key_table.rows(opened)) if there else []
    except (StoreError, sqlite3.Error) as error:
        problem = error.message if isinstance(error, StoreError) else f"can't be read as a store: {error}"
        raise StoreError(f"{path}: {problem}. Name the store with --store or --cluster.") from error


def _line_of_stdin() -> str:
    """A key may be any bytes: those that are no UTF-8 are kept as Python keeps them on a command line."""
    return sys.stdin.buffer.readline().decode("utf-8", "surrogateescape")


def _check_names(tenant: str, name: str) -> None:
    """What no cluster file can declare gets no key, and what no terminal can show no place in the list."""
    if not re.fullmatch(NAME, tenant):
        raise UsageError(f"{tenant!r} can't be the name of a tenant; {NAME_ADVICE}")
    if not name.isprintable():
        raise UsageError(f"--name {name!r} has characters that can't be shown; use printable ones")


def _in_cluster(spec: ClusterSpec) -> Iterator[dict[str, Any]]:
    """The keys that stand in the cluster file, as `_shown` shows those of the store."""
    for tenant in spec.tenants.values():
        for key in tenant.keys:
            yield _in_file(tenant.name, key, "cluster")


def _in_keys_file(spec: ClusterSpec) -> Iterator[dict[str, Any]]:
    """The same of its keys file, which is not read before the first one is asked for. Raises SpecError, StoreError."""
    if spec.gateway.keys_file is not None:
        for key in KeysFile(Path(spec.gateway.keys_file)).look() or ():
            yield _in_file(key.tenant, PREFIX + key.digest.hex(), "keys_file")


def _in_file(tenant: str, key: str, source: str) -> dict[str, Any]:
    nothing = dict.fromkeys(("id", "name", "created", "expires", "revoked"))
    return {**nothing, "tenant": tenant, "hash": key, "source": source}


def _show(found: list[dict[str, Any]]) -> None:
    table = Table(box=None, header_style="bold")
    for column in ("id", "tenant", "name", "created", "expires", "revoked", "source", "hash"):
        table.add_column(column)
    for key in found:
        cells = [key[column.header] or "–" for column in table.columns]  # type: ignore[index]  # headers are text here
        table.add_row(*(printable(cell) for cell in [*cells[:-1], cells[-1][: len(PREFIX) + 8] + "…"]))
    results.print(table)


def _shown(row: Row, source: str) -> dict[str, Any]:
    """A key for people and programs: times in UTC, as ISO 8601."""
    times = {field: _time(getattr(row, field)) for field in ("created", "expires", "revoked")}
    return {"id": row.id, "tenant": row.tenant, "name": row.name, **times, "source": source, "hash": row.hash}


def _time(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
