"""--profile names a built-in one or a file; what is wrong with the file is said with its name."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from kilocard.cli.profile_file import read_profile
from kilocard.core.errors import KilocardError
from kilocard.perf.builtin import A100_7B


@pytest.mark.parametrize("under", [False, True])
def test_a_profile_alone_or_as_calibrate_writes_it_into_a_document(tmp_path: Path, under: bool) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump({"profile": A100_7B.to_mapping()} if under else A100_7B.to_mapping()))
    assert read_profile(str(path)) == A100_7B


def test_a_date_needs_no_quotes(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(A100_7B.to_mapping() | {"date": ""}).replace("date: ''", "date: 2026-11-30"))
    assert read_profile(str(path)).date == "2026-11-30"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"profile: 3", "a profile is a mapping"),
        (b"[]", "a profile is a mapping"),
        (b"", "a profile is a mapping"),
        (b"1: 2", "unknown key"),
        (b"profile: [a", "not YAML"),
        (b"\xff\xfe\x00a", "can't be read"),
        (b"engine_version: 0.19", "put it in quotes"),
    ],
)
def test_what_is_no_profile_is_said_with_the_files_name(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_bytes(content)
    with pytest.raises(KilocardError, match=says) as caught:
        read_profile(str(path))
    assert str(path) in caught.value.message
    assert caught.value.exit_code == 2


def test_a_file_that_is_not_there_is_said_beside_what_is_built_in(tmp_path: Path) -> None:
    for name in (str(tmp_path / "nope.yaml"), "nope"):
        with pytest.raises(KilocardError, match="small-fast, a100-7b, cpu-smol"):
            read_profile(name)
