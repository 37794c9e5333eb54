"""The chart under the real Helm: linted, rendered with many values, and the same as `kilocard render kubernetes`."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from kubernetes_tools import read, run, tool, validate
from test_kubernetes_files import SOURCES, render
from tests.unit.deploy.chart import Chart, by_kubernetes, meaning

from kilocard.deploy.helm.values import Document, changed
from kilocard.spec.load import load

ROOT = Path(__file__).parent.parent.parent


def released(chart: Path, scratch: Path, document: Document) -> list[dict[str, Any]]:
    file = scratch / "values.json"
    file.write_text(json.dumps(document))
    return read(run("bin/helm", "template", "a-release", chart, "--values", file, "--kube-version", "1.37.0"))


def by_name(things: list[Any]) -> list[Any]:
    """Helm sorts by kind."""
    return sorted(meaning(things), key=lambda thing: (thing["kind"], thing["metadata"]["name"]))


@pytest.mark.parametrize("cluster", SOURCES, ids=lambda path: path.stem)
def test_a_chart_is_linted_rendered_and_fits_the_schemas(cluster: Path, tmp_path: Path) -> None:
    chart = tmp_path / "kilocard"
    render("helm", cluster, chart)
    assert "0 chart(s) failed" in run("bin/helm", "lint", "--strict", chart)
    document = yaml.safe_load((chart / "values.yaml").read_text())
    things = released(chart, tmp_path, {})
    assert by_name(things) == sorted(
        by_kubernetes(document), key=lambda thing: (thing["kind"], thing["metadata"]["name"])
    )
    validate(things, tmp_path)


#: texts that a schema may let in, and that quoting, numbers or YAML's words may trip over
TEXTS = (
    "a",
    "0",
    "007",
    "1e3",
    "true",
    "Null",
    "a: b",
    "a #b",
    "x{{ .y }}",
    "q'r\"s\\\\t",
    "a  b, [c] & *d !e % @f <g>",
)


def some(schema: dict[str, Any], turn: int) -> Any:
    """One of the values that a knob's schema lets in."""
    if schema["type"] == "string":
        fits = [text for text in TEXTS if Draft202012Validator(schema).is_valid(text)]
        return fits[turn % len(fits)]
    least, most = schema["minimum"], schema["maximum"]
    if schema["type"] == "number":
        return (0.1, 0.85, 12.5, 999.25, 0.333)[turn % 5]
    return (least, most, (least + most) // 2, least + 1, max(least, most - 1))[turn % 5]


@pytest.mark.parametrize("turn", range(3))
@pytest.mark.parametrize("cluster", SOURCES, ids=lambda path: path.stem)
def test_whatever_the_schema_allows_helm_renders_as_kilocard_does(cluster: Path, turn: int, tmp_path: Path) -> None:
    """`render kubernetes` of the same values is the truth; Helm checks them by the chart's schema first."""
    one = Chart(load(cluster))
    chart = tmp_path / "kilocard"
    for path, text in one.files.items():
        (chart / path).parent.mkdir(parents=True, exist_ok=True)
        (chart / path).write_text(text)
    news = {knob.place: some(one.schema_of(knob.place), turn * 7 + number) for number, knob in enumerate(one.knobs)}
    for place in [place for place in news if place[0] == "models"]:
        news[place] = max(1, news[place])  # some pool gets requests
    document = changed(one.values, news)
    expected = sorted(by_kubernetes(document), key=lambda thing: (thing["kind"], thing["metadata"]["name"]))
    assert by_name(released(chart, tmp_path, document)) == expected


@pytest.mark.parametrize(
    "setting",
    [
        "pools.qwen-7b-v1.version=0.9.0",
        "pools.qwen-7b-v1.replicas.min=9",
        "pools.qwen-7b-v1.argz=1",
        "gateway.drain=1m",
    ],
)
def test_helm_refuses_what_the_chart_can_not_follow(setting: str) -> None:
    command = [tool("bin/helm"), "template", "a-release", str(ROOT / "charts" / "kilocard"), "--set", setting]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and "schema" in done.stderr


def test_traffic_moves_by_a_release(tmp_path: Path) -> None:
    """R43, R52: the weights of a canary are values."""
    things = read(
        run(
            "bin/helm", "template", "a-release", ROOT / "charts" / "kilocard",
            "--set", "models.qwen-7b.pools.qwen-7b-v1=90,models.qwen-7b.pools.qwen-7b-v2=10",
        )
    )  # fmt: skip
    (config,) = [thing["data"] for thing in meaning(things) if thing["kind"] == "ConfigMap"]
    assert config.models["qwen-7b"].pools == {"qwen-7b-v1": 90, "qwen-7b-v2": 10}


def test_a_packed_chart_renders_the_same(tmp_path: Path) -> None:
    run("bin/helm", "package", ROOT / "charts" / "kilocard", "--destination", tmp_path)
    (archive,) = tmp_path.glob("kilocard-*.tgz")
    assert read(run("bin/helm", "template", "a", archive)) == read(
        run("bin/helm", "template", "a", ROOT / "charts" / "kilocard")
    )
