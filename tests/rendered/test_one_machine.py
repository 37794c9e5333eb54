"""Compose and systemd: what is rendered is what these programs take."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from tests.golden_cases import GOLDEN, GOLDEN_OF
from tests.parts import part_missing
from tests.rendered.programs import CACHE

from kilocard.spec.load import load


@pytest.mark.parametrize("cluster", GOLDEN_OF["compose"])
def test_the_compose_file_keeps_to_the_specification(cluster: str) -> None:
    checker = CACHE / "kilocard-benchmarks" / "check-jsonschema" / "bin" / "check-jsonschema"
    if not checker.exists():
        part_missing("check-jsonschema is not installed: scripts/test-rendered installs it")
    file = GOLDEN / "compose" / cluster / "compose.yaml"
    said = subprocess.run(
        [checker, "--builtin-schema", "vendor.compose-spec", file], capture_output=True, text=True, check=False
    )
    assert said.returncode == 0, said.stdout + said.stderr


def test_the_check_of_the_compose_file_can_fail(tmp_path: Path) -> None:
    checker = CACHE / "kilocard-benchmarks" / "check-jsonschema" / "bin" / "check-jsonschema"
    if not checker.exists():
        part_missing("check-jsonschema is not installed: scripts/test-rendered installs it")
    document = yaml.safe_load((GOLDEN / "compose" / "one-model" / "compose.yaml").read_text())
    document["services"]["gateway"]["read_onyl"] = True
    (tmp_path / "compose.yaml").write_text(json.dumps(document))
    argv = [checker, "--builtin-schema", "vendor.compose-spec", tmp_path / "compose.yaml"]
    assert subprocess.run(argv, capture_output=True, check=False).returncode == 1


@pytest.mark.parametrize("cluster", GOLDEN_OF["compose"])
def test_the_gateway_of_the_compose_file_reads_its_cluster_file(cluster: str) -> None:
    folder = GOLDEN / "compose" / cluster
    spec = load(folder / "cluster.yaml", env={"KILOCARD_LIMIT_STORE": "redis://redis:6379/0"})
    services = yaml.safe_load((folder / "compose.yaml").read_text())["services"]
    hosts = {url.removeprefix("http://").partition(":")[0] for pool in spec.pools.values() for url in pool.endpoints}
    assert hosts - {"llm.example.com"} == set(services) - {"gateway"}


@pytest.mark.parametrize("cluster", GOLDEN_OF["systemd"])
def test_systemd_takes_the_unit(cluster: str) -> None:
    program = shutil.which("systemd-analyze") or part_missing("systemd is not installed: apt-get install systemd")
    unit = GOLDEN / "systemd" / cluster / "kilocard.service"
    said = subprocess.run([program, "verify", "--man=no", unit], capture_output=True, text=True, check=False)
    # it looks at the units of this machine too: only what it says of ours counts
    ours = [line for line in (said.stdout + said.stderr).splitlines() if "kilocard" in line]
    assert not ours, ours


def test_the_check_of_the_unit_can_fail(tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze") or part_missing("systemd is not installed: apt-get install systemd")
    text = (GOLDEN / "systemd" / "one-model" / "kilocard.service").read_text()
    unit = tmp_path / "kilocard.service"
    unit.write_text(text.replace("Restart=always", "Restart=alwys"))
    said = subprocess.run([program, "verify", "--man=no", unit], capture_output=True, text=True, check=False)
    assert "alwys" in said.stdout + said.stderr
