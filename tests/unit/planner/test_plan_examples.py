"""The golden plans decide as their reviews say. That docs/plan-examples.md is what is printed, scripts/check looks."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from kilocard.cli.main import app

TOP = Path(__file__).parents[3]
LISTED: list[dict[str, Any]] = yaml.safe_load((TOP / "docs" / "plans" / "plans.yaml").read_text())


@pytest.mark.parametrize("example", LISTED, ids=lambda each: each["name"])
def test_golden_plan(example: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(TOP)
    found = CliRunner().invoke(app, ["plan", *shlex.split(example["run"]), "--json"])
    assert found.exit_code == 0, found.exception
    document = json.loads(found.stdout)
    choice, expect = document["choice"], example["expect"]
    for key in ("tensor", "pipeline", "gpu"):
        if key in expect:
            assert choice[key] == expect[key], key
    for key in ("replicas", "gpus"):
        if key in expect:
            low, high = expect[key]
            assert low <= choice[key] <= high, key
    if "verdict" in expect:
        assert document["advice"]["verdict"] == expect["verdict"]
