"""The log of a replica: rotated, bounded, read from its end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kilocard.backends.replica_log import ReplicaLog
from kilocard.core.errors import BackendError


def write(log: ReplicaLog, data: bytes) -> None:
    with log.path.open("ab") as file:
        file.write(data)


def fresh(folder: Path, max_bytes: int = 1000) -> ReplicaLog:
    log = ReplicaLog(folder / "deeper" / "p-0.log", max_bytes)
    os.close(log.rotate())
    return log


def test_a_new_run_keeps_the_one_before(tmp_path: Path) -> None:
    log = fresh(tmp_path)
    write(log, b"first run\n")
    assert log.new_lines() == ["first run"]
    os.close(log.rotate())
    assert log.earlier.read_bytes() == b"first run\n"
    write(log, b"second\n")
    assert log.new_lines() == ["second"]
    os.close(log.rotate())
    assert log.earlier.read_bytes() == b"second\n"


def test_lines_come_whole_and_once(tmp_path: Path) -> None:
    log = fresh(tmp_path)
    assert log.new_lines() == []
    write(log, b"one\ntw")
    assert log.new_lines() == ["one"]
    write(log, "o €".encode()[:-1])
    assert log.new_lines() == []
    write(log, "€".encode()[-1:] + b"\r\nthree\n\xff\n")
    assert log.new_lines() == ["two €", "three", "\ufffd"]
    assert log.new_lines() == []


def test_a_log_that_grows_too_large_is_emptied_into_the_earlier_one(tmp_path: Path) -> None:
    log = ReplicaLog(tmp_path / "p-0.log", max_bytes=1000)
    descriptor = log.rotate()
    try:
        os.write(descriptor, b"x" * 1200 + b"\n")
        assert len(log.new_lines()) == 1
        assert log.path.stat().st_size == 0
        assert log.earlier.stat().st_size == 1201
        os.write(descriptor, b"it goes on\n")  # the engine's own descriptor appends
        assert log.new_lines() == ["it goes on"]
        assert log.path.read_bytes() == b"it goes on\n"
    finally:
        os.close(descriptor)


def test_the_tail(tmp_path: Path) -> None:
    log = fresh(tmp_path)
    assert log.tail(3) == ()
    write(log, b"a\n\nb\nc\n10%\r50%\r100%\nno line end")
    assert log.tail(3) == ("c", "100%", "no line end")
    assert ReplicaLog(tmp_path / "missing.log").tail(3) == ()
    assert ReplicaLog(tmp_path / "missing.log").new_lines() == []


def test_a_log_that_cannot_be_written_says_where_and_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(BackendError, match=r"file/p-0\.log can't be written: .*KILOCARD_HOME"):
        ReplicaLog(tmp_path / "file" / "p-0.log").rotate()
