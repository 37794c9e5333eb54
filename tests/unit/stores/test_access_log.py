"""The access log: a line is a line, whatever is in it, and nothing is written twice or torn."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from usage_records import record

from kilocard.core.errors import StoreError
from kilocard.stores.access_log import AccessLog, encode

#: 2026-11-28T00:00:00Z
START = 1_795_824_000.0


def write(log: AccessLog, *numbers: int) -> None:
    log.write(log.prepare([record(number) for number in numbers], START))


def ids(path: Path) -> list[str]:
    return [json.loads(line)["request_id"].rpartition("-")[2] for line in path.read_text().splitlines()]


def test_a_line() -> None:
    line = encode([record(code="idle_timeout", status=504, outcome="timeout", ended=10.0421)], START)
    assert line.endswith(b"\n")
    assert json.loads(line) == {
        "time": "2026-11-28T00:00:10.042Z",
        "request_id": "kc-0123456789ab-1",
        "client_request_id": "mine",
        "client": "10.0.0.7:4711",
        "tenant": "team-a",
        "model": "m",
        "path": "/v1/chat/completions",
        "status": 504,
        "outcome": "timeout",
        "error_code": "idle_timeout",
        "pool": "p",
        "replica": "p/0",
        "attempts": 1,
        "streamed": True,
        "bytes_in": 120,
        "prompt_tokens": 100,
        "cached_tokens": 60,
        "output_tokens": 20,
        "estimated": False,
        "held_s": 0.25,
        "ttft_s": 0.5,
        "duration_s": 2.0421,
    }


def test_what_there_was_not_is_null() -> None:
    gone = record(status=0, pool="", replica="", first_at=0.0, peer=None)
    line = json.loads(encode([gone], START))
    assert [line[name] for name in ("status", "pool", "replica", "ttft_s", "client", "error_code")] == [None] * 6


def test_an_ipv6_client() -> None:
    assert json.loads(encode([record(peer=("::1", 80))], START))["client"] == "[::1]:80"


@given(texts=st.lists(st.text(max_size=40), min_size=1, max_size=5))
def test_no_name_breaks_a_line(texts: list[str]) -> None:
    evil = [text + '\n\r"\\\x00\x85\u2028\u2029\x1e' for text in texts]
    lines = encode([record(asked_model=text, path=text) for text in evil], START).decode().splitlines()
    assert [json.loads(line)["model"] for line in lines] == evil
    assert [json.loads(line)["path"] for line in lines] == evil


@pytest.mark.parametrize("how", ["rename", "remove", "truncate"])
def test_logrotate(tmp_path: Path, how: str) -> None:
    path = tmp_path / "access.log"
    log = AccessLog(str(path))
    write(log, 1, 2)
    if how == "rename":
        path.rename(tmp_path / "access.log.1")
    elif how == "remove":
        path.unlink()
    else:  # copytruncate
        os.truncate(path, 0)
    write(log, 3)
    log.close()
    assert ids(path) == ["3"]
    if how == "rename":
        assert ids(tmp_path / "access.log.1") == ["1", "2"]


def test_a_quiet_gateway_lets_go_of_a_rotated_file_too(tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    log = AccessLog(str(path))
    path.rename(tmp_path / "access.log.1")
    log.tidy(START)
    assert path.exists()
    log.close()


def test_a_full_disk_keeps_what_is_not_written() -> None:
    """/dev/full: each write fails with ENOSPC."""
    log = AccessLog("/dev/full")
    batch = log.prepare([record(1), record(2)], START)
    before = bytes(batch)
    for _ in range(2):
        with pytest.raises(OSError, match="No space left"):
            log.write(batch)
    assert bytes(batch) == before
    log.close()


def test_a_pipe_that_fills_up_is_gone_on_with_where_it_stopped(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    log = AccessLog(str(tmp_path / "pipe"))
    batch = log.prepare([record(number) for number in range(600)], START)
    whole = bytes(batch)
    assert len(whole) > 3 * 65536
    got, full = b"", 0
    while batch:
        try:
            log.write(batch)
        except BlockingIOError:
            full += 1
        got += os.read(reader, 1 << 20)
    assert full >= 2
    assert got == whole
    os.close(reader)
    with pytest.raises(BrokenPipeError):
        write(log, 1)
    log.close()


def test_a_line_that_was_cut_by_a_full_disk_does_not_go_on_in_the_next_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "access.log"
    log = AccessLog(str(path))
    batch = log.prepare([record(1), record(2)], START)
    real, calls = os.write, []

    def first_ten_bytes_then_full(file: int, data: bytes) -> int:
        calls.append(file)
        if len(calls) > 1:
            raise OSError(28, "No space left on device")
        return real(file, data[:10])

    monkeypatch.setattr(os, "write", first_ten_bytes_then_full)
    with pytest.raises(OSError, match="No space"):
        log.write(batch)
    monkeypatch.undo()
    path.rename(tmp_path / "access.log.1")
    log.write(batch)
    log.close()
    assert ids(path) == ["2"]


def test_a_place_that_can_not_be_opened_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"gateway\.access_log"):
        AccessLog(str(tmp_path / "no" / "access.log"))
    os.mkfifo(tmp_path / "pipe")  # nobody reads it: opening must not wait
    with pytest.raises(StoreError):
        AccessLog(str(tmp_path / "pipe"))
