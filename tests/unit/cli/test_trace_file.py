"""Traces as they lie around: packed, marked, cut off, or something else."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from kilocard.bench.asked import Asked
from kilocard.cli.bench_options import Words, asked_of
from kilocard.cli.decision_file import decision_lines
from kilocard.core.errors import UsageError

AZURE = b"TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:15:46.0,20,5\r\n2023-11-16 18:15:47.0,21,6\r\n"


def asked(path: Path) -> Asked:
    return asked_of(Words(trace=path, seed=1))


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_a_packed_trace_is_the_trace(tmp_path: Path, mark: bytes) -> None:
    plain, packed = tmp_path / "trace.csv", tmp_path / "trace.csv.gz"
    plain.write_bytes(mark + AZURE)
    packed.write_bytes(gzip.compress(mark + AZURE))
    assert asked(packed).trace == asked(plain).trace != ()


def test_a_packed_decision_log_is_read_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "decisions.gz"
    path.write_bytes(gzip.compress(b"".join(json.dumps({"at": i}).encode() + b"\n" for i in range(3))))
    assert list(decision_lines(path)) == [{"at": 0}, {"at": 1}, {"at": 2}]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (gzip.compress(AZURE)[:-12], "can't be read"),
        (bytes(range(128, 256)), "not text in UTF-8"),
        (AZURE[:41], "no request that was answered"),
    ],
)
def test_what_is_no_trace_is_said_in_plain_words(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "trace"
    path.write_bytes(content)
    with pytest.raises(Exception, match=says) as caught:
        asked(path)
    assert getattr(caught.value, "exit_code", None) == 2


def test_a_folder_is_no_trace(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="can't be read: Is a directory"):
        asked(tmp_path)
