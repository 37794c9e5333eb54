"""Mappings and lists of a cluster file: sections with fixed keys, maps from names to things, lists, weights.

They report their problems themselves and go on, so that one reading finds all of them; what could not be read is
left at its default.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from kilocard.spec.kinds import At, Kind, Schema, Text, Whole
from kilocard.spec.problems import did_you_mean
from kilocard.spec.units import UnitError, kind_of, show


def _as_is(values: dict[str, Any], at: At) -> dict[str, Any]:
    return values


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a section."""

    name: str
    kind: Kind
    doc: str
    #: the dataclass field, where it is not the key's name; "" for keys that `Section.settle` turns into others
    field: str | None = None
    #: advice for a file that lacks the key; "": the key may be left out
    required: str = ""
    #: the default in words, where it depends on other keys
    default: str = ""

    @property
    def target(self) -> str:
        return self.name if self.field is None else self.field


@dataclass(frozen=True, slots=True)
class Section:
    """A mapping with fixed keys, read into a dataclass."""

    #: the result where every key is left out
    blank: Any
    doc: str
    keys: tuple[Key, ...]
    #: for `$defs` of the schema and headings of the reference
    title: str
    #: a value that may stand for the whole section: its kind, and the section that it stands for
    short: tuple[Kind, Callable[[Any], dict[str, Any]]] | None = None
    #: fills in defaults that depend on other keys; gets and gives fields by name
    settle: Callable[[dict[str, Any], At], dict[str, Any]] = _as_is
    #: keys that start with this are nobody's business but the file's (a place for anchors)
    private: str | None = None

    @property
    def label(self) -> str:
        return f"{self.short[0].label}, or a section" if self.short else "section"

    def read(self, value: object, at: At, **extra: Any) -> Any:
        if self.short is not None and value is not None and not isinstance(value, Mapping | list | tuple):
            kind, expand = self.short
            value = expand(kind.read(value, at))
        if value is None:
            value = {}
        if not isinstance(value, Mapping):
            at.problems.add(at.path, f"is {kind_of(value)}, not a section", f"write keys under it: {self._known()}")
            return replace(self.blank, **extra)
        values: dict[str, Any] = {}
        table = {key.name: key for key in self.keys}
        present = dict(entries(value, at))
        for name, item in present.items():
            key = table.get(name)
            if key is None:
                if self.private is None or not name.startswith(self.private):
                    at.problems.add((*at.path, name), "is no known key here", did_you_mean(name, table))
            elif item is not None:
                try:
                    values[key.target or key.name] = key.kind.read(item, at / name)
                except UnitError as error:
                    at.problems.add_error((*at.path, name), error)
        for key in self.keys:
            if key.required and present.get(key.name) is None:
                at.problems.add((*at.path, key.name), "is missing", key.required)
        return replace(self.blank, **extra, **self.settle(values, at))

    def _known(self) -> str:
        return ", ".join(key.name for key in self.keys)

    def dump(self, value: Any) -> object:
        result = {}
        for key in self.keys:
            if key.target and (item := getattr(value, key.target)) != getattr(self.blank, key.target):
                result[key.name] = key.kind.dump(item)
        return result

    def schema(self, definitions: dict[str, Schema]) -> Schema:
        reference: Schema = {"$ref": f"#/$defs/{self.title}"}
        if self.title not in definitions:
            definitions[self.title] = {}  # holds the place, so that definitions come in reading order
            definitions[self.title] = self.body(definitions)
        if self.short:
            return {"anyOf": [self.short[0].schema(definitions), reference]}
        return reference

    def body(self, definitions: dict[str, Schema]) -> Schema:
        """The schema of the mapping itself."""
        properties = {}
        for key in self.keys:
            schema = key.kind.schema(definitions) | {"description": key.doc}
            default = getattr(self.blank, key.target) if key.target else None
            if (
                default is not None
                and not key.required
                and not isinstance(key.kind, Section)
                and default not in ((), {})
            ):
                schema["default"] = key.kind.dump(default)
            properties[key.name] = schema
        schema = {"description": self.doc, "type": "object", "properties": properties, "additionalProperties": False}
        if required := [key.name for key in self.keys if key.required]:
            schema["required"] = required
        if self.private is not None:
            schema["patternProperties"] = {f"^{re.escape(self.private)}": {}}
        return schema


def entries(mapping: Mapping[Any, object], at: At) -> Iterator[tuple[str, object]]:
    """A mapping's entries by text keys. Numbers count as text; other keys, and twins after that, are problems."""
    seen = set()
    for key, item in mapping.items():
        if isinstance(key, bool):
            name = "true" if key else "false"
            at.problems.add((*at.path, name), "is a key that is true or false", "put it in quotes if it is a name")
        elif isinstance(key, str | int | float):
            name = key if isinstance(key, str) else show(key)
            if name in seen:
                at.problems.add((*at.path, name), "is there twice, as text and as a number", "remove one")
            seen.add(name)
            yield name, item
        else:
            at.problems.add(at.path, f"has a key that is {kind_of(key)}", "keys are names; put this one in quotes")


@dataclass(frozen=True, slots=True)
class Named:
    """A map from the user's own names to values or sections (a section's dataclass is told its `name`)."""

    kind: Kind
    #: what the names are, e.g. "pool"
    noun: str
    name: str
    name_advice: str
    #: whether a section's dataclass has a `name`
    told: bool = True

    @property
    def label(self) -> str:
        return f"map: {self.noun} → {self.kind.label}"

    def read(self, value: object, at: At) -> dict[str, Any]:
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise UnitError(f"is {kind_of(value)}, not a mapping", f"write {self.noun}: … for each, one a line")
        result = {}
        for name, item in entries(value, at):
            here = at / name
            if not re.fullmatch(self.name, name, re.ASCII):
                at.problems.add(here.path, f"is no name for a {self.noun}", self.name_advice)
            try:
                if isinstance(self.kind, Section) and self.told:
                    result[name] = self.kind.read(item, here, name=name)
                else:
                    result[name] = self.kind.read(item, here)
            except UnitError as error:
                at.problems.add_error(here.path, error)
        return result

    def dump(self, value: Any) -> object:
        return {name: self.kind.dump(item) for name, item in value.items()}

    def schema(self, definitions: dict[str, Schema]) -> Schema:
        item = self.kind.schema(definitions)
        if isinstance(self.kind, Section):
            item = {"anyOf": [item, {"type": "null"}]}
        names = {"pattern": f"^(?:{self.name})$"}
        return {"type": "object", "propertyNames": names, "additionalProperties": item}


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list of different values."""

    kind: Kind
    noun: str
    #: whether a message may repeat an item
    secret: bool = False
    #: what to do about a list without any, where that is a mistake; "": it is none
    if_empty: str = ""

    @property
    def label(self) -> str:
        return f"list of {self.kind.label}"

    def read(self, value: object, at: At) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple):
            raise UnitError(
                f"is {kind_of(value)}, not a list", f"write a list: [{self.noun}, …], or one a line after -"
            )
        if self.if_empty and not value:
            raise UnitError("is an empty list", self.if_empty)
        result: dict[Any, int] = {}
        for place, item in enumerate(value):
            try:
                read = self.kind.read(item, at / place)
            except UnitError as error:
                at.problems.add_error((*at.path, place), error)
                continue
            if read in result:
                named = "" if self.secret else f" ({show(read)})"
                at.problems.add((*at.path, place), f"is the same as [{result[read]}]{named}", "remove one of them")
            result.setdefault(read, place)
        return tuple(result)

    def dump(self, value: Any) -> object:
        return [self.kind.dump(item) for item in value]

    def schema(self, definitions: dict[str, Schema]) -> Schema:
        schema: Schema = {"type": "array", "items": self.kind.schema(definitions), "uniqueItems": True}
        return schema | {"minItems": 1} if self.if_empty else schema


@dataclass(frozen=True, slots=True)
class Weights:
    """Pools of a model: a map from pool to weight, or a list of pools, or one pool (weight 1 each)."""

    pool: Text
    label: str = "map: pool → weight, a list of pools, or one pool"

    def read(self, value: object, at: At) -> dict[str, int]:
        if isinstance(value, str):
            return {self.pool.read(value, at): 1}
        if isinstance(value, list | tuple):
            return dict.fromkeys(ListOf(self.pool, "pool").read(value, at), 1)
        # A missing weight is an error: 0 and 1 would be equally good guesses.
        weights: dict[str, int] = Named(Whole(0, 1_000_000), "pool", ".+", "name a pool").read(value, at)
        return weights

    def dump(self, value: Any) -> object:
        return dict(value)

    def schema(self, definitions: dict[str, Schema]) -> Schema:
        weight = Whole(0, 1_000_000).schema(definitions)
        return {
            "anyOf": [
                {"type": "object", "additionalProperties": weight},
                {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
                {"type": "string"},
            ]
        }
