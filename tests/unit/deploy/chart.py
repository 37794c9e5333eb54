"""A rendered chart, and what Helm makes of it with other values, as far as our templates go."""

from __future__ import annotations

import json
from typing import Any

import yaml
from hypothesis import strategies as st

from kilocard.deploy.helm.knobs import Knob, knobs
from kilocard.deploy.helm.render import render
from kilocard.deploy.helm.schema import values_schema
from kilocard.deploy.helm.template import filled_in
from kilocard.deploy.helm.values import Document, values
from kilocard.deploy.kubernetes.render import objects
from kilocard.deploy.target import RenderOptions
from kilocard.spec.model import ClusterSpec
from kilocard.spec.parse import parse
from kilocard.spec.yaml_document import read_document

#: libyaml's where it is there: ten times as fast
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
#: what a gateway's Secret could have
SECRETS = {"KILOCARD_LIMIT_STORE": "redis://r:1", "KILOCARD_USAGE_DATABASE": "postgresql://d/x"}
OPTIONS = RenderOptions(version="1.2.3")


class Chart:
    def __init__(self, spec: ClusterSpec) -> None:
        self.files = render(spec, OPTIONS)
        self.values: Document = yaml.safe_load(self.files["values.yaml"])
        self.schema: dict[str, Any] = json.loads(self.files["values.schema.json"])
        self.knobs: list[Knob] = knobs(values(spec, OPTIONS), OPTIONS)
        assert self.schema == values_schema(values(spec, OPTIONS), self.knobs)

    @property
    def places(self) -> set[str]:
        return {".".join(knob.place) for knob in self.knobs}

    def released(self, document: Document) -> list[Any]:
        """All objects of a release with these values."""
        return meaning(
            [
                thing
                for path, text in self.files.items()
                if path.startswith("templates/") and path.endswith(".yaml")
                for thing in yaml.load_all(filled_in(text, document), LOADER)
            ]
        )

    def schema_of(self, place: tuple[str, ...]) -> dict[str, Any]:
        found = self.schema
        for part in place:
            found = found["properties"][part]
        return found


def by_kubernetes(document: Document) -> list[Any]:
    """What `render kubernetes` makes of these values, as a cluster file."""
    return meaning([thing for each in objects(parse(document), OPTIONS).values() for thing in each])


def meaning(things: list[Any]) -> list[Any]:
    """Objects with the cluster file in them read as the gateway does: a default that is written out is the same."""
    found = []
    for thing in things:
        if thing["kind"] == "ConfigMap":
            document = read_document(thing["data"]["cluster.yaml"], env=SECRETS)
            thing = {**thing, "data": parse(document.value, texts=document.texts)}
        found.append(thing)
    return found


def allowed(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values that a knob's schema lets in."""
    if schema["type"] == "integer":
        return st.integers(schema["minimum"], schema["maximum"])
    if schema["type"] == "number":
        return st.floats(schema["minimum"], schema["maximum"]).filter(lambda number: number != int(number))
    texts = st.from_regex(schema["pattern"], fullmatch=True)
    for more in schema.get("allOf", []):
        texts = st.from_regex(more["pattern"], fullmatch=True)
    return texts.filter(lambda text: "\n" not in text and len(text) < 60)
