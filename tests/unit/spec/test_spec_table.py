"""What comes out of the table: schema, dump, reference page; and that the table says all that the model has."""

from __future__ import annotations

import dataclasses
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from kilocard.core.errors import SpecError
from kilocard.spec import deployment, model, scaling
from kilocard.spec.dump import dump
from kilocard.spec.kinds import At
from kilocard.spec.load import load
from kilocard.spec.model import ReplicaRange
from kilocard.spec.parse import parse
from kilocard.spec.problems import Problems
from kilocard.spec.schema import json_schema
from kilocard.spec.sections import Key, Named, Section
from kilocard.spec.table import cluster_section

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
POOL = {"engine": "vllm", "model": "m"}


def sections(section: Section) -> Iterator[Section]:
    yield section
    for key in section.keys:
        for kind in (key.kind, getattr(key.kind, "kind", None)):
            if isinstance(kind, Section):
                yield from sections(kind)


SECTIONS = list(sections(cluster_section()))


def key_ids() -> list[tuple[Section, Key]]:
    return [(section, key) for section in SECTIONS for key in section.keys]


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.title)
def test_the_table_has_every_field_of_the_model(section: Section) -> None:
    fields = {field.name for field in dataclasses.fields(section.blank)} - {"name"}
    assert {key.target for key in section.keys if key.target} == fields


def test_every_dataclass_of_the_model_is_in_the_table() -> None:
    found = (value for module in (model, deployment, scaling) for value in vars(module).values())
    types = {value for value in found if dataclasses.is_dataclass(value)}
    assert {type(section.blank) for section in SECTIONS} == types


@pytest.mark.parametrize(
    ("section", "key"), key_ids(), ids=lambda value: getattr(value, "title", getattr(value, "name", ""))
)
def test_every_key_says_what_it_means(section: Section, key: Key) -> None:
    assert key.doc[0].isupper() or key.doc[0] == "`" or key.doc.startswith("…")
    assert key.doc.endswith((".", "…"))


@pytest.mark.parametrize(
    ("section", "key"), key_ids(), ids=lambda value: getattr(value, "title", getattr(value, "name", ""))
)
def test_every_default_is_written_so_that_it_means_the_same(section: Section, key: Key) -> None:
    default = getattr(section.blank, key.target) if key.target else None
    if default is None or key.required or default in ((), {}) or isinstance(key.kind, Named):
        return
    problems = Problems()
    assert key.kind.read(key.kind.dump(default), At((), problems)) == default
    problems.raise_if_any()


# --- examples ---------------------------------------------------------------------------------------------------


def test_the_examples_are_there() -> None:
    assert {path.stem for path in EXAMPLES} >= {"minimal", "vllm", "local", "external", "mixed"}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_are_read_and_written_back(path: Path) -> None:
    spec = load(path)
    written = dump(spec)
    assert parse(written) == spec
    assert parse(yaml.safe_load(yaml.safe_dump(written))) == spec


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_and_their_dumps_fit_the_schema(path: Path) -> None:
    for document in (yaml.safe_load(path.read_text()), dump(load(path))):
        jsonschema.Draft202012Validator(json_schema()).validate(document)


def test_what_the_examples_say() -> None:
    mixed = load(ROOT / "examples" / "mixed.yaml")
    assert mixed.models["qwen-7b"].pools == {"qwen-7b-v1": 90, "qwen-7b-v2": 10}
    assert load(ROOT / "examples" / "local.yaml").pools["local"].replicas == ReplicaRange(2, 2)
    assert len(load(ROOT / "examples" / "external.yaml").pools["qwen-7b"].endpoints) == 3


def test_a_dump_leaves_defaults_out_but_not_what_differs() -> None:
    spec = parse(
        {"gateway": {"listen": "127.0.0.1:8000", "limits": {"body": "1MiB"}}, "pools": {"p": {**POOL, "drain": 90}}}
    )
    assert dump(spec) == {
        "gateway": {"limits": {"body": "1MiB"}},
        "models": {"p": {"pools": {"p": 1}}},
        "pools": {"p": {**POOL, "drain": {"grace": "1m30s"}}},
    }


# --- the schema -------------------------------------------------------------------------------------------------


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(json_schema())


def test_schema_and_parser_know_the_same_keys() -> None:
    schema = json_schema()
    for section in SECTIONS:
        body = schema if section.title == "Cluster" else schema["$defs"][section.title]
        names = [key.name for key in section.keys]
        assert list(body["properties"]) == (["extends", *names] if section.title == "Cluster" else names)
        assert body["additionalProperties"] is False
        assert all(value["description"] for value in body["properties"].values())


@pytest.mark.parametrize(
    ("document", "fits"),
    [
        ({"pools": {"p": POOL}}, True),
        ({"extends": "base.yaml"}, True),
        ({"x-y": 1, "pools": {"p": POOL}}, True),
        ({"models": {"p": None}, "pools": {"p": POOL}}, True),
        ({"models": {"m": {"pools": ["p"]}}, "pools": {"p": {**POOL, "replicas": 2, "gpus": 2, "drain": "5m"}}}, True),
        ({"pools": {"p": {**POOL, "replicas": {"max": "${MAX:-4}"}, "start": {"timeout": 5}}}}, True),
        ({"pools": {"p": {**POOL, "command": "a b", "args": {"x": [1, "a"]}}}}, True),
        ({}, False),
        ({"pols": {}}, False),
        ({"pools": {"p": {"model": "m"}}}, False),
        ({"pools": {"p": {**POOL, "engine": "vlm"}}}, False),
        ({"pools": {"a b": POOL}}, False),
        ({"pools": {"p": {**POOL, "replicas": 0.5}}}, False),
        ({"pools": {"p": {**POOL, "drain": "5 minutes"}}}, False),
        ({"pools": {"p": {**POOL, "endpoints": ["https://a"]}}}, False),
        ({"gateway": {"listen": "8000"}, "pools": {"p": POOL}}, False),
        ({"tenants": {"t": {"keys": ["sk-x"]}}, "pools": {"p": POOL}}, False),
    ],
)
def test_schema_and_parser_agree(document: dict[str, Any], fits: bool) -> None:
    assert jsonschema.Draft202012Validator(json_schema()).is_valid(document) is fits
    if "extends" in document or "${" in str(document):
        return  # the loader's part
    if fits:
        parse(document)
    else:
        with pytest.raises(SpecError):
            parse(document)


def test_the_schema_offers_the_engines_it_is_given() -> None:
    engine = json_schema(frozenset({"mine"}))["$defs"]["Pool"]["properties"]["engine"]
    assert {"enum": ["mine"]} in engine["anyOf"]


# --- the reference page -----------------------------------------------------------------------------------------


@pytest.mark.timeout(60)  # all pages, the plans among them: two seconds of processor time and more
def test_generated_pages_are_up_to_date() -> None:
    """Fix: run scripts/generate-docs."""
    assert runpy.run_path(str(ROOT / "scripts" / "generate-docs"))["main"](["--check"]) == 0


def test_the_check_fails_on_a_page_that_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "generate-docs"))
    script["PAGES"][:] = [lambda: {"docs/reference/cluster-file.md": "something else\n"}]
    assert script["main"](["--check"]) == 1
    assert "run scripts/generate-docs" in capsys.readouterr().err
