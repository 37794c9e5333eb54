"""`kilocard simulate` with pools that grow and shrink."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kilocard.cli.main import app

SCALES = """
models: {m: {pool: p}}
pools:
  p:
    engine: emulated
    replicas: {min: 1, max: 6}
    scaling: {up: {above: 4, for: 2s}, down: {below: 1, for: 20s}}
"""
LOAD = ("--rate", "60", "--input", "200", "--output", "60", "--duration", "30s", "--load-time", "5s")


@pytest.fixture
def cluster(tmp_path: Path) -> str:
    path = tmp_path / "cluster.yaml"
    path.write_text(SCALES)
    return str(path)


def run(*words: str) -> tuple[dict[str, Any], dict[str, Any]]:
    found = CliRunner().invoke(app, ["simulate", *words, "--json"])
    assert found.exit_code == 0, found.output
    document: dict[str, Any] = json.loads(found.stdout)
    (policy,) = document["policies"].values()
    return document, policy


def test_a_pool_with_scaling_grows_as_its_file_says(cluster: str) -> None:
    document, policy = run(cluster, *LOAD)
    assert document["pools"]["p"]["scaling"] is True
    its = policy["scaling"]["pools"]["p"]
    assert its["least"] == 1
    assert 3 <= its["most"] <= 6
    first = policy["scaling"]["events"][0]
    assert (first["have"], first["wanted"], first["reason"]) == (1, 2, "above")
    assert max(moment["there"] for moment in policy["over_time"]) == its["most"]


def test_a_number_that_is_given_stays_unless_asked_otherwise(cluster: str) -> None:
    assert run(cluster, *LOAD, "--replicas", "2")[1]["scaling"] is None
    assert run(cluster, *LOAD, "--no-scaling")[1]["scaling"] is None
    document, policy = run(cluster, *LOAD, "--replicas", "2", "--scaling")
    assert document["replicas"] == policy["scaling"]["events"][0]["have"] == 2


def test_the_page_says_when_and_why(cluster: str, tmp_path: Path) -> None:
    found = CliRunner().invoke(app, ["simulate", cluster, *LOAD, "--out", str(tmp_path / "out")])
    assert "requests wait per replica, more than 4 for 2 of 2 s" in found.output.replace("\n", " ")
    assert "Replicas that hold GPUs" in (tmp_path / "out" / "report.html").read_text()
