"""`kilocard keys` with names, keys and stores that nobody should give it."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from kilocard.cli.main import app
from kilocard.core.errors import KilocardError, StoreError, UsageError
from kilocard.stores import key_table
from kilocard.stores.embedded import connect
from kilocard.stores.key_table import Row


def keys(*words: object, stdin: bytes = b"") -> tuple[str, str]:
    """What went to stdout and to stderr."""
    done = CliRunner().invoke(app, ["keys", *map(str, words)], input=stdin)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.stdout, done.stderr


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "k.db"


@pytest.mark.parametrize("tenant", ["", " a", "a\n", "t\udcff", "a\x1b[31m", "x" * 201])
def test_a_tenant_that_no_file_can_declare_gets_no_key(store: Path, tenant: str) -> None:
    with pytest.raises(UsageError, match="name of a tenant"):
        keys("create", tenant, "--store", store)
    assert not store.exists()


@pytest.mark.parametrize("name", ["two\nlines", "\x1b[31mred", "\udcff"])
def test_a_name_that_no_terminal_can_show_is_refused(store: Path, name: str) -> None:
    with pytest.raises(UsageError, match="--name"):
        keys("create", "a", "--name", name, "--store", store)


def test_a_name_in_a_store_does_not_write_on_the_terminal(store: Path) -> None:
    with connect(store, *key_table.TABLES) as opened:
        key_table.add(opened, Row("1", "a", "\x1b[2Jgone", "sha256:" + "0" * 64, 0.0, None, None))
    assert "\x1b[2J" not in keys("list", "--store", store)[0]


@pytest.mark.parametrize("tenant", ["yes", "a: b", "#1", "17", "'q\"", "{x}", "团队"])
def test_the_lines_for_the_cluster_file_can_be_read_back(tenant: str) -> None:
    key, notes = keys("create", tenant, "--no-store")
    digest = hashlib.sha256(key.strip().encode()).hexdigest()
    assert yaml.safe_load(notes[notes.index("tenants:") :]) == {"tenants": {tenant: {"keys": [f"sha256:{digest}"]}}}


def test_a_key_of_any_bytes_can_be_revoked(tmp_path: Path, store: Path) -> None:
    """What clients sent as a key is hashed as bytes; it need not be UTF-8."""
    digest = "sha256:" + hashlib.sha256(b"caf\xe9").hexdigest()
    cluster = tmp_path / "c.yaml"
    cluster.write_text(
        json.dumps(
            {
                "gateway": {"store": str(store)},
                "pools": {"p": {"engine": "emulated"}},
                "tenants": {"a": {"keys": [digest]}},
            }
        )
    )
    said = keys("revoke", "-", "--cluster", cluster, stdin=b"caf\xe9\n")[1]
    assert "Revoked a key of a; take its hash out of the cluster file too." in said
    listed = json.loads(keys("list", "--cluster", cluster, "--json")[0])["keys"]
    assert [key["revoked"] is not None for key in listed if key["hash"] == digest] == [True, False]


def test_a_broken_keys_file_hides_no_other_keys(tmp_path: Path, store: Path) -> None:
    """In an emergency a key's id has to be found, whatever else is wrong."""
    keys("create", "a", "--store", store)
    broken = tmp_path / "keys.yaml"
    broken.write_text("a: [")
    digest = "sha256:" + "0" * 64
    cluster = tmp_path / "c.yaml"
    cluster.write_text(
        json.dumps(
            {
                "gateway": {"store": str(store), "keys_file": str(broken)},
                "pools": {"p": {"engine": "emulated"}},
                "tenants": {"a": {"keys": [digest]}},
            }
        )
    )
    done = CliRunner().invoke(app, ["keys", "list", "--cluster", str(cluster), "--json"])
    assert [key["source"] for key in json.loads(done.stdout)["keys"]] == ["store", "cluster"]
    assert isinstance(done.exception, KilocardError) and "keys.yaml" in str(done.exception)
    assert "Revoked a key of a" in keys("revoke", digest, "--cluster", cluster)[1]


def test_nothing_to_revoke_is_said_as_it_is(store: Path) -> None:
    with pytest.raises(UsageError, match="on stdin"):
        keys("revoke", "-", "--store", store, stdin=b"\n")
    with pytest.raises(UsageError, match="id or hash"):
        keys("revoke", "", "--store", store)


def test_a_look_changes_nothing_in_a_file_of_somebody_else(store: Path) -> None:
    with sqlite3.connect(store) as other:
        other.execute("CREATE TABLE theirs (x)")
    other.close()
    before = store.read_bytes()
    assert json.loads(keys("list", "--store", store, "--json")[0])["keys"] == []
    with pytest.raises(KilocardError, match="no such key"):
        keys("revoke", "12345678", "--store", store)
    assert store.read_bytes() == before and list(store.parent.iterdir()) == [store]


def test_a_file_that_is_no_store_is_named(store: Path) -> None:
    store.write_bytes(b"\x01" * 8192)
    for words in (("list",), ("revoke", "12345678"), ("create", "a")):
        with pytest.raises(StoreError, match=r"k\.db: .*not a database"):
            keys(*words, "--store", store)
    with sqlite3.connect(store.with_name("other.db")) as odd:
        odd.execute("CREATE TABLE api_keys (unlike TEXT)")
    odd.close()
    with pytest.raises(StoreError, match=r"other\.db: the keys can't be read"):
        keys("list", "--store", store.with_name("other.db"))
