"""`kilocard render`: files to stdout or into a folder, and whether a folder is up to date."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from kilocard.cli.main import app
from kilocard.cli.rendered import Folder
from kilocard.core.errors import UsageError

ONE = "gateway: {allow_open: true}\npools:\n  a: {engine: vllm, version: 0.32.0, model: m/m}\n"
TWO = ONE + "  b: {engine: vllm, version: 0.32.0, model: m/m}\n"


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_stdout_is_one_stream_of_documents(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["render", "kubernetes", str(written(tmp_path / "c.yaml", TWO))])
    assert done.exit_code == 0
    assert all(document["kind"] for document in yaml.safe_load_all(done.stdout))


def test_check_says_what_is_not_as_rendered(tmp_path: Path) -> None:
    cluster, out = written(tmp_path / "c.yaml", TWO), tmp_path / "out"
    run = ["render", "kubernetes", str(cluster), "--out", str(out)]
    assert CliRunner().invoke(app, [*run, "--check"]).exit_code == 1
    assert CliRunner().invoke(app, run).exit_code == 0
    assert CliRunner().invoke(app, [*run, "--check"]).exit_code == 0
    some = next(path for path in out.rglob("*.yaml"))
    some.write_text(some.read_text() + "# a hand was here\n")
    done = CliRunner().invoke(app, [*run, "--check"])
    assert done.exit_code == 1 and "differs" in done.stderr


def test_what_is_no_longer_rendered_goes_and_other_files_stay(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.write({"a.yaml": "a\n", "pools/b.yaml": "b\n"})
    (tmp_path / "notes.txt").write_text("mine")
    assert folder.news({"a.yaml": "a\n"}) == {"pools/b.yaml": "is no longer rendered"}
    folder.write({"a.yaml": "a\n"})
    assert (tmp_path / "notes.txt").exists() and not (tmp_path / "pools/b.yaml").exists()


def test_a_list_that_leads_out_of_the_folder_removes_nothing(tmp_path: Path) -> None:
    mine = written(tmp_path / "mine.txt", "mine")
    out = tmp_path / "out"
    out.mkdir()
    (out / ".kilocard-rendered").write_text(f"../mine.txt\n{mine}\n")
    Folder(out).write({"a.yaml": "a\n"})
    assert mine.exists()


def test_an_unknown_target_is_named_with_the_nearest(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["render", "kubernets", str(written(tmp_path / "c.yaml", ONE))])
    assert isinstance(done.exception, UsageError) and "kubernetes" in str(done.exception)


def test_check_without_a_folder_is_a_usage_error(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["render", "kubernetes", str(written(tmp_path / "c.yaml", ONE)), "--check"])
    assert isinstance(done.exception, UsageError)


def test_a_folder_that_can_not_be_written_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="can't be written"):
        Folder(written(tmp_path / "file", "")).write({"a.yaml": "a\n"})
