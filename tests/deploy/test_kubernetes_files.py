"""What `kilocard render kubernetes` writes, read by kubectl and held against the strict schemas of Kubernetes 1.37."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from pathlib import Path

import pytest
from kubernetes_tools import read, run, validate
from tests.golden_cases import CLUSTERS, GOLDEN, GOLDEN_OF

ROOT = GOLDEN.parent.parent
SOURCES = [
    *CLUSTERS.glob("*.yaml"),
    ROOT / "examples" / "kubernetes.yaml",
    *Path(__file__).parent.glob("clusters/*.yaml"),
]


def render(target: str, cluster: Path, out: Path) -> None:
    """By the command itself, as a user would."""
    command = [sys.executable, "-m", "kilocard", "render", target, str(cluster), "--out", str(out)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("cluster", SOURCES, ids=lambda path: path.stem)
def test_kubectl_builds_it_and_every_object_fits_its_schema(cluster: Path, tmp_path: Path) -> None:
    render("kubernetes", cluster, tmp_path / "out")
    things = read(run("bin/kubectl", "kustomize", tmp_path / "out"))
    assert len(things) >= 8
    validate(things, tmp_path)


@pytest.mark.parametrize("cluster", GOLDEN_OF["kubernetes"])
def test_the_golden_folder_is_built_whole(cluster: str) -> None:
    folder = GOLDEN / "kubernetes" / cluster
    built = read(run("bin/kubectl", "kustomize", folder))
    written = [
        thing for file in folder.glob("*.yaml") if file.name != "kustomization.yaml" for thing in read(file.read_text())
    ]
    name = lambda thing: (thing["kind"], thing["metadata"]["name"])  # noqa: E731  # a key
    assert sorted(map(name, built)) == sorted(map(name, written))
    assert sorted(built, key=name) == sorted(written, key=name)


def test_the_schemas_are_strict(tmp_path: Path) -> None:
    """What the tests above would let through: they have to be able to fail."""
    folder = GOLDEN / "kubernetes" / "fleet"
    things = read(run("bin/kubectl", "kustomize", folder))
    for change in (
        lambda thing: thing["spec"].update(replica=1),
        lambda thing: thing["spec"]["template"]["spec"]["containers"][0].update(livenessprobe={}),
        lambda thing: thing["spec"].update(replicas="two"),
    ):
        broken = copy.deepcopy(things)
        change(next(thing for thing in broken if thing["kind"] == "Deployment"))
        with pytest.raises(AssertionError):
            validate(broken, tmp_path)
    group = copy.deepcopy(things)
    (one,) = [thing for thing in group if thing["kind"] == "LeaderWorkerSet"]
    one["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]["terminationGracePeriod"] = 1
    with pytest.raises(AssertionError):
        validate(group, tmp_path)
