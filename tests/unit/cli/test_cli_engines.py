"""`kilocard engines`: the table of choices."""

from __future__ import annotations

import json

from typer.testing import CliRunner

from kilocard.cli.main import app
from kilocard.engines.choice import CHOICES
from kilocard.engines.registry import ENGINES


def test_every_choice_is_an_engine_that_a_pool_can_name() -> None:
    names = [each.name for each in CHOICES]
    assert len(set(names)) == len(names)
    assert set(ENGINES) - set(names) == {"emulated", "external"}


def test_the_table_names_every_engine_and_its_reason() -> None:
    found = CliRunner().invoke(app, ["engines"])
    assert found.exit_code == 0
    for each in CHOICES:
        assert each.name in found.stdout and each.reason in found.stdout


def test_json_has_the_reasons() -> None:
    found = CliRunner().invoke(app, ["engines", "--json"])
    rows = {row["name"]: row for row in json.loads(found.stdout)["engines"]}
    assert rows["vllm"]["effort"] == "low" and rows["trtllm"]["effort"] == "high"
    assert "RadixAttention" in rows["sglang"]["throughput"]
