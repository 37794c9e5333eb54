"""kilocard model fetch | list | path."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kilocard.backends import models
from kilocard.cli.model import app
from kilocard.core.errors import BackendError


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KILOCARD_HOME", str(tmp_path))
    return tmp_path


def put() -> Path:
    """A file of the right size stands for the model."""
    models.models_dir().mkdir(parents=True)
    with models.path().open("wb") as file:
        file.truncate(models.DEFAULT.size)
    return models.path()


def test_path() -> None:
    missing = CliRunner().invoke(app, ["path"])
    assert isinstance(missing.exception, BackendError)
    assert "kilocard model fetch" in str(missing.exception)
    file = put()
    assert CliRunner().invoke(app, ["path"]).output == f"{file}\n"


def test_list() -> None:
    assert "not fetched" in CliRunner().invoke(app, ["list"]).output
    file = put()
    [model] = json.loads(CliRunner().invoke(app, ["list", "--json"]).output)["models"]
    assert (model["path"], model["fetched"]) == (str(file), True)
    assert str(file) in CliRunner().invoke(app, ["list"]).output


def test_fetch_checks_the_hash_of_what_is_here() -> None:
    put()
    result = CliRunner().invoke(app, ["fetch"])
    assert isinstance(result.exception, BackendError)
    assert "delete it and fetch again" in str(result.exception)


def test_fetch_prints_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    file = put()
    monkeypatch.setattr(models, "verify", lambda: True)
    assert CliRunner().invoke(app, ["fetch"]).output == f"{file}\n"
    assert json.loads(CliRunner().invoke(app, ["fetch", "--json"]).output)["path"] == str(file)
