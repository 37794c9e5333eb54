"""values.schema.json: knobs may be set within what the cluster file's own schema allows; all else is as rendered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kilocard.deploy.helm.knobs import FRACTIONS, PLAIN_TEXT, Knob
from kilocard.deploy.helm.values import Document, Place, at
from kilocard.spec.kinds import Kind, Text, Whole
from kilocard.spec.sections import Named, Section, Weights
from kilocard.spec.table import cluster_section

Schema = dict[str, Any]

LONGEST_TEXT = 4000
LARGEST_NUMBER = 1_000_000_000


def values_schema(values: Document, knobs: list[Knob]) -> Schema:
    by_place = {knob.place: knob for knob in knobs}
    body = _of(values, (), by_place, values)
    # Helm itself adds this key where the chart is part of another.
    body["properties"]["global"] = {"type": "object"}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Values of this chart: the cluster file that it was rendered from",
        "description": "A const decides which objects there are: change it in the cluster file and render again.",
        **body,
    }


def _of(value: Any, place: Place, knobs: Mapping[Place, Knob], values: Document) -> Schema:
    if isinstance(value, Mapping):
        schema: Schema = {
            "type": "object",
            "properties": {key: _of(item, (*place, key), knobs, values) for key, item in value.items()},
            "required": list(value),
            "additionalProperties": False,
        }
        if len(place) == 3 and place[0] == "models" and place[2] == "pools":
            schema["anyOf"] = [
                {"properties": {pool: {"exclusiveMinimum": 0}}} for pool in value
            ]  # some pool gets requests
        return schema
    knob = knobs.get(place)
    return {"const": value} if knob is None else _knob(knob, value, values)


def _knob(knob: Knob, value: Any, values: Document) -> Schema:
    kind, doc = _kind_at(knob.place)
    schema: Schema = {"description": doc} if doc else {}
    if knob.kind is str:
        own = kind.pattern if isinstance(kind, Text) else None
        longest = min(LONGEST_TEXT, kind.longest) if isinstance(kind, Text) else LONGEST_TEXT
        schema |= {"type": "string", "pattern": PLAIN_TEXT, "maxLength": longest}
        if own is not None:
            schema["allOf"] = [{"pattern": f"^(?:{own})$"}]
        return schema
    if knob.kind is float:
        least, most = FRACTIONS
        return schema | {"type": "number", "minimum": least, "maximum": most, "not": {"type": "integer"}}
    low, high = (kind.least, kind.most) if isinstance(kind, Whole) else (min(1, value), LARGEST_NUMBER)
    *way, last = knob.place
    if last == "min":
        low, high = min(1, value), at(values, (*way, "max"))  # whether it may sleep is a matter of shape
    elif last == "max":
        low = max(value, at(values, (*way, "min")))
    return schema | {"type": "integer", "minimum": low, "maximum": high}


def _kind_at(place: Place) -> tuple[Kind, str]:
    """What the cluster file's table says of a key."""
    kind: Kind = cluster_section()
    doc = ""
    for part in place:
        if isinstance(kind, Section):
            key = next(key for key in kind.keys if key.name == part)
            kind, doc = key.kind, key.doc
        elif isinstance(kind, Named):
            kind = kind.kind
        elif isinstance(kind, Weights):
            kind = Whole(0, 1_000_000)
    return kind, doc
