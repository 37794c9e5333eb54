"""Prometheus's own program reads what is rendered for it, and says when alerts fire."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from tests.golden_cases import GOLDEN, GOLDEN_OF
from tests.parts import part_missing


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    program = shutil.which("promtool") or part_missing("promtool is not installed: apt-get install prometheus")
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("cluster", GOLDEN_OF["prometheus"])
def test_prometheus_takes_the_configuration_and_the_rules(cluster: str) -> None:
    said = promtool("check", "config", GOLDEN / "prometheus" / cluster / "prometheus.yaml")
    assert said.returncode == 0, said.stdout + said.stderr
    said = promtool("check", "rules", "--lint-fatal", GOLDEN / "prometheus" / cluster / "rules" / "kilocard.yaml")
    assert said.returncode == 0, said.stdout + said.stderr


def test_alerts_fire_when_they_should_and_only_then(tmp_path: Path) -> None:
    rules = GOLDEN / "prometheus" / "fleet" / "rules" / "kilocard.yaml"
    text = (Path(__file__).parent / "alerts_test.yaml").read_text().replace("RULES", str(rules))
    (tmp_path / "test.yaml").write_text(text)
    said = promtool("test", "rules", tmp_path / "test.yaml")
    assert said.returncode == 0, said.stdout + said.stderr


def test_the_test_of_alerts_can_fail(tmp_path: Path) -> None:
    rules = (GOLDEN / "prometheus" / "fleet" / "rules" / "kilocard.yaml").read_text()
    (tmp_path / "rules.yaml").write_text(rules.replace("> 20", "> 200"))
    text = (Path(__file__).parent / "alerts_test.yaml").read_text().replace("RULES", str(tmp_path / "rules.yaml"))
    (tmp_path / "test.yaml").write_text(text)
    assert promtool("test", "rules", tmp_path / "test.yaml").returncode == 1


def test_prometheus_can_read_every_query_of_the_dashboard(tmp_path: Path) -> None:
    dashboard = json.loads((GOLDEN / "grafana" / "one-model" / "kilocard.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    recorded = [
        {"record": f"query:{number}", "expr": query.replace("$__rate_interval", "5m")}
        for number, query in enumerate(queries)
    ]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "all", "rules": recorded}]}))
    said = promtool("check", "rules", tmp_path / "rules.yaml")
    assert said.returncode == 0 and len(queries) > 20, said.stdout + said.stderr
