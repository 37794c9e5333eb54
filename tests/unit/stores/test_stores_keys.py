"""Sources of keys on the disk: what a change is, and what a fault is (which changes nothing)."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kilocard.core.errors import SpecError, StoreError
from kilocard.stores import key_table
from kilocard.stores.embedded import connect, read_only
from kilocard.stores.key_store import KeyStore
from kilocard.stores.key_table import Row, hash_of, new_key
from kilocard.stores.keys_file import KeysFile
from kilocard.tenancy.keys import Key

A, B = (hashlib.sha256(name.encode()).digest() for name in "ab")


def line(tenant: str, digest: bytes) -> str:
    return f"{tenant}: [sha256:{digest.hex()}]\n"


def renamed_over(path: Path, text: str) -> None:
    new = path.with_name("new")
    new.write_text(text)
    os.replace(new, path)


# --- the keys file


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    """Whoever opens one waits for a writer, a gateway for ever; then no key file was followed any more."""
    path = tmp_path / "keys.yaml"
    path.write_text(line("t", A))
    source = KeysFile(path)
    assert source.look() == (Key(A, "t"),)
    path.unlink()
    os.mkfifo(path)
    for _ in range(2):
        with pytest.raises(StoreError, match=r"keys\.yaml is no regular file"):
            source.look()
    path.unlink()
    path.mkdir()
    with pytest.raises(StoreError, match="no regular file"):
        source.look()
    path.rmdir()
    path.write_text(line("t", B))
    assert source.look() == (Key(B, "t"),)


def test_a_file_that_is_back_is_read_again(tmp_path: Path) -> None:
    """Another one in its place may be the same in all that a look compares: a file system gives numbers again."""
    path, away = tmp_path / "keys.yaml", tmp_path / "away"
    path.write_text(line("t", A))
    source = KeysFile(path)
    assert source.look() == (Key(A, "t"),)
    for in_its_place in (os.mkfifo, Path.mkdir, None):
        path.rename(away)
        if in_its_place is not None:
            in_its_place(path)
        with pytest.raises(StoreError):
            source.look()
        if path.is_dir():
            path.rmdir()
        away.rename(path)
        assert source.look() == (Key(A, "t"),)


@pytest.mark.parametrize("text", ["t:\n\t- x", "t: !!str x", "t: [a", "\0", "t: &a [*a]"])
def test_a_keys_file_is_not_called_a_cluster_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "keys.yaml"
    path.write_text(text)
    with pytest.raises(SpecError, match=r"keys\.yaml:[12]: ") as caught:
        KeysFile(path).look()
    assert "cluster file" not in caught.value.message


def test_a_file_is_read_once_and_again_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "keys.yaml"
    path.write_text(line("t", A))
    source = KeysFile(path)
    assert source.look() == (Key(A, "t"),)
    assert source.look() is None
    renamed_over(path, line("t", B))
    assert source.look() == (Key(B, "t"),)
    assert source.look() is None


def test_a_kubernetes_secret_is_swapped_by_its_symbolic_link(tmp_path: Path) -> None:
    """keys.yaml → ..data/keys.yaml, ..data → ..1; kubelet renames a new link over ..data."""
    for number, digest in ((1, A), (2, B)):
        folder = tmp_path / f"..{number}"
        folder.mkdir()
        (folder / "keys.yaml").write_text(line("t", digest))
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "keys.yaml").symlink_to("..data/keys.yaml")
    source = KeysFile(tmp_path / "keys.yaml")
    assert source.look() == (Key(A, "t"),)
    (tmp_path / "..data_tmp").symlink_to("..2")
    os.replace(tmp_path / "..data_tmp", tmp_path / "..data")
    assert source.look() == (Key(B, "t"),)


def test_a_bad_file_is_a_fault_until_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "keys.yaml"
    path.write_text(line("t", A))
    source = KeysFile(path)
    source.look()
    renamed_over(path, "t: [nonsense]")
    for _ in range(2):
        with pytest.raises(SpecError):
            source.look()
    path.unlink()
    with pytest.raises(StoreError, match="can't be read"):
        source.look()
    renamed_over(path, line("t", A))
    assert source.look() == (Key(A, "t"),)


@pytest.mark.parametrize("content", [b"\xff\xfe", b"t: [\x00]"])
def test_bytes_that_are_no_text_are_a_fault(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "keys.yaml"
    path.write_bytes(content)
    with pytest.raises((SpecError, StoreError)):
        KeysFile(path).look()


# --- the store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "kilocard.db"


@pytest.fixture
def source(path: Path) -> Iterator[KeyStore]:
    one = KeyStore(path)
    yield one
    one.close()


def add(path: Path, name: str, key: str, **more: float) -> None:
    with closing(connect(path, *key_table.TABLES)) as store:
        key_table.add(store, Row(name, "t", "", hash_of(key), 1.0, more.get("expires"), more.get("revoked")))


def test_a_store_that_is_not_there_has_no_keys_and_is_not_made(path: Path, source: KeyStore) -> None:
    assert source.look() is None
    assert not path.exists()
    add(path, "one", "a")
    assert source.look() == (Key(A, "t"),)


def test_changes_are_noticed_and_nothing_else_is(path: Path, source: KeyStore) -> None:
    add(path, "one", "a")
    assert source.look() == (Key(A, "t"),)
    assert source.look() is None
    with closing(connect(path, "CREATE TABLE usage (x)")) as ledger:
        for _ in range(3):
            ledger.execute("INSERT INTO usage VALUES (1)")
            assert source.look() is None
    add(path, "two", "b", expires=9.0)
    assert source.look() == (Key(A, "t"), Key(B, "t", 9.0))
    with closing(connect(path)) as store:
        key_table.revoke(store, "one", 5.0)
        assert source.look() == (Key(A, "t", None, True), Key(B, "t", 9.0))
        key_table.revoke(store, "one", 7.0)  # again: it stays as it is
        assert [row.revoked for row in key_table.rows(store)] == [5.0, None]
        store.execute("DELETE FROM api_keys WHERE id = 'one'")  # by hand
        assert source.look() == (Key(B, "t", 9.0),)


def test_a_store_of_others_without_keys_is_fine(path: Path, source: KeyStore) -> None:
    connect(path, "CREATE TABLE usage (x)").close()
    assert source.look() is None
    add(path, "one", "a")
    assert source.look() == (Key(A, "t"),)


def test_42_a_store_that_is_gone_or_made_anew_is_a_fault_not_an_order(path: Path, source: KeyStore) -> None:
    add(path, "one", "a")
    source.look()
    away = path.with_name("away")
    os.replace(path, away)
    with pytest.raises(StoreError, match="is gone"):
        source.look()
    for left in path.parent.glob("kilocard.db-*"):
        left.unlink()
    connect(path, "CREATE TABLE usage (x)").close()
    with pytest.raises(StoreError, match="no keys any more"):
        source.look()
    os.replace(away, path)
    assert source.look() == (Key(A, "t"),)


@pytest.mark.parametrize("content", [b"this is no database" * 300, b""])
def test_42_a_broken_store_is_a_fault(path: Path, source: KeyStore, content: bytes) -> None:
    add(path, "one", "a")
    source.look()
    renamed_over_bytes = path.with_name("new")
    renamed_over_bytes.write_bytes(content)
    os.replace(renamed_over_bytes, path)
    for _ in range(2):
        with pytest.raises(StoreError):
            source.look()


def test_a_store_is_its_owners_alone(path: Path) -> None:
    connect(path).close()
    assert path.stat().st_mode & 0o777 == 0o600


def test_opening_a_store_twice_keeps_the_first_ones_locks(path: Path) -> None:
    """To close any descriptor of a file drops all locks that the process has on it (POSIX)."""
    takes_it_over = "import sqlite3, sys; print(*sqlite3.connect(sys.argv[1]).execute('PRAGMA journal_mode=DELETE'))"
    with closing(connect(path, "CREATE TABLE t (x)")):
        connect(path).close()
        done = subprocess.run([sys.executable, "-Sc", takes_it_over, str(path)], capture_output=True, text=True)
        assert "locked" in done.stderr, f"another process changed the open store: {done.stdout}"


def test_keys_are_recognised_by_their_beginning_and_found_by_their_id() -> None:
    key, key_id = new_key()
    assert key.startswith(f"kc-{key_id}-") and len(key) == len(f"kc-{key_id}-") + 43
    assert new_key()[0] != key
    assert hash_of("a") == "sha256:" + A.hex()


def test_two_keys_with_one_hash_are_refused(path: Path) -> None:
    add(path, "one", "a")
    with pytest.raises(StoreError):
        add(path, "two", "a")


def test_a_store_is_always_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite takes this name for a database that lives in the process, and dies with it."""
    monkeypatch.chdir(tmp_path)
    connect(Path(":memory:"), *key_table.TABLES).close()
    with closing(read_only(Path(":memory:"))) as store:
        assert not list(key_table.rows(store))
