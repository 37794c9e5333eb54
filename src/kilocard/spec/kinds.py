"""The kinds of single values in a cluster file: how each is read, described, and written back.

`read` raises UnitError for a value that won't do; whoever holds the value's path reports it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from kilocard.spec import units
from kilocard.spec.problems import Path, Problems, did_you_mean
from kilocard.spec.scalars import untyped
from kilocard.spec.units import UnitError, kind_of, show

Schema = dict[str, Any]
#: Any value may also be "${NAME}", which is filled in from the environment before it is read.
FROM_ENVIRONMENT: Schema = {"$ref": "#/$defs/FromEnvironment"}


@dataclass(frozen=True, slots=True)
class At:
    """A place in the document, and what is known about the document around it."""

    path: Path
    problems: Problems
    #: how numbers were written (`0.10`), for keys that want text
    texts: Mapping[Path, str] = field(default_factory=dict)

    def __truediv__(self, part: str | int) -> At:
        return At((*self.path, part), self.problems, self.texts)


class Kind(Protocol):
    @property
    def label(self) -> str:
        """For the reference page, e.g. "duration"."""

    def read(self, value: object, at: At) -> Any:
        """The typed value; UnitError (single values) or reported problems (sections, maps, lists) otherwise."""

    def dump(self, value: Any) -> object:
        """What `read` would turn into `value` again, made of YAML's own types."""

    def schema(self, definitions: dict[str, Schema]) -> Schema:
        """JSON Schema; sections add themselves to `definitions`."""


@dataclass(frozen=True, slots=True)
class Text:
    """Non-empty text. Numbers are taken as they were written; true and false are asked to be quoted."""

    label: str = "text"
    pattern: str | None = None
    advice: str = "write text"
    longest: int = 4096
    may_be_empty: bool = False

    def read(self, value: object, at: At) -> str:
        if isinstance(value, bool):
            raise UnitError(
                "is true or false, not text", "put it in quotes: unquoted yes, no, on, off, true and false are not text"
            )
        if isinstance(value, int | float):
            written = at.texts.get(at.path)
            if written is None and isinstance(value, float):
                raise UnitError("is a number, not text", "put it in quotes")
            value = show(value) if written is None else written
        if not isinstance(value, str):
            raise UnitError(f"is {kind_of(value)}, not text", self.advice)
        text = str(value)
        if not text.strip() and not self.may_be_empty:
            raise UnitError("is empty", self.advice)
        if len(text) > self.longest:
            raise UnitError(f"is {len(text):,} characters long", f"{self.longest:,} is the most")
        if any(c == "\0" or "\ud800" <= c <= "\udfff" for c in text):
            raise UnitError("has characters that no program can be given (NUL or half a surrogate)", self.advice)
        if self.pattern is not None and not re.fullmatch(self.pattern, text, re.ASCII):
            raise UnitError(f"is {show(text)}", self.advice)
        return text

    def dump(self, value: Any) -> object:
        return value

    def schema(self, definitions: dict[str, Schema]) -> Schema:
        schema: Schema = {"type": ["string", "number"] if self.pattern is None else "string"}
        if self.pattern is not None:
            return {"anyOf": [schema | {"pattern": f"^(?:{self.pattern})$"}, FROM_ENVIRONMENT]}
        return schema


@dataclass(frozen=True, slots=True)
class Choice:
    """One word of a closed list."""

    words: tuple[str, ...]

    @property
    def label(self) -> str:
        return "one of " + ", ".join(f"`{word}`" for word in self.words)

    def read(self, value: object, at: At) -> str:
        word = Text(advice=f"write one of {', '.join(self.words)}").read(value, at)
        if word in self.words:
            return word
        raise UnitError(f"is {show(word)}, which is not known", did_you_mean(word, self.words))

    def dump(self, value: Any) -> object:
        return value

    def schema(self, definitions: dict[str, Schema]) -> Schema:
        return {"anyOf": [{"enum": list(self.words)}, FROM_ENVIRONMENT]}


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number in a range."""

    least: int = 0
    most: int = 1_000_000_000

    @property
    def label(self) -> str:
        return f"whole number ≥ {self.least}"

    def read(self, value: object, at: At) -> int:
        advice = f"write a whole number from {self.least} to {self.most:,}"
        value = untyped(value)
        if isinstance(value, str):
            raise UnitError(f"is the text {show(value)}, not a number", f"{advice}, without quotes")
        number = units.number(value, advice)
        if number != int(number):
            raise UnitError(f"is {show(value)}, not a whole number", advice)
        if not self.least <= number <= self.most:
            raise UnitError(f"is {show(value)}", advice)
        return int(number)

    def dump(self, value: Any) -> object:
        return value

    def schema(self, definitions: dict[str, Schema]) -> Schema:
        return {"anyOf": [{"type": "integer", "minimum": self.least, "maximum": self.most}, FROM_ENVIRONMENT]}


@dataclass(frozen=True, slots=True)
class YesNo:
    """true or false."""

    label: str = "true or false"

    def read(self, value: object, at: At) -> bool:
        value = untyped(value)
        if not isinstance(value, bool):
            raise UnitError(f"is {kind_of(value)}", "write true or false, without quotes")
        return value

    def dump(self, value: Any) -> object:
        return value

    def schema(self, definitions: dict[str, Schema]) -> Schema:
        return {"anyOf": [{"type": "boolean"}, FROM_ENVIRONMENT]}


@dataclass(frozen=True, slots=True)
class Number:
    """A number from 0 up."""

    label: str = "number ≥ 0"
    not_zero: str = ""

    def read(self, value: object, at: At) -> float:
        advice = "write a number, 0 or more"
        value = untyped(value)
        if isinstance(value, str):
            raise UnitError(f"is the text {show(value)}, not a number", f"{advice}, without quotes")
        number = units.number(value, advice)
        if number < 0:
            raise UnitError(f"is {show(value)}", advice)
        if self.not_zero and not number:
            raise UnitError("is 0", self.not_zero)
        return number

    def dump(self, value: Any) -> object:
        return value

    def schema(self, definitions: dict[str, Schema]) -> Schema:
        return {"anyOf": [{"type": "number", "minimum": 0}, FROM_ENVIRONMENT]}


@dataclass(frozen=True, slots=True)
class Unit:
    """A number with a unit: durations, sizes, shares, addresses. The work is done by functions of `units.py`."""

    label: str
    parse: Callable[[object], Any]
    write: Callable[[Any], object]
    #: alternatives of the JSON Schema
    shapes: tuple[Schema, ...]
    #: 0 is refused with this advice
    not_zero: str = ""

    def read(self, value: object, at: At) -> Any:
        result = self.parse(untyped(value))
        if self.not_zero and not result:
            raise UnitError("is 0", self.not_zero)
        return result

    def dump(self, value: Any) -> object:
        return self.write(value)

    def schema(self, definitions: dict[str, Schema]) -> Schema:
        return {"anyOf": [*self.shapes, FROM_ENVIRONMENT]}


_DURATION_SHAPES: tuple[Schema, ...] = (
    {"type": "number", "minimum": 0},
    {"type": "string", "pattern": r"^\s*(?:[0-9]+(?:\.[0-9]+)?\s*(?:us|µs|ms|s|m|h|d)\s*)+$|^[0-9]+(?:\.[0-9]+)?$"},
)
_SIZE_SHAPES: tuple[Schema, ...] = (
    {"type": "integer", "minimum": 0},
    {"type": "string", "pattern": r"^[0-9]+(?:\.[0-9]+)?\s*[kKmMgGtT]?i?[bB]?$"},
)
_SHARE_SHAPES: tuple[Schema, ...] = (
    {"type": "number", "minimum": 0, "maximum": 1},
    {"type": "string", "pattern": r"^[0-9]+(?:\.[0-9]+)?\s*%$"},
)

DURATION = Unit("duration", units.duration, units.format_duration, _DURATION_SHAPES)
SOME_TIME = Unit(
    "duration > 0",
    units.duration,
    units.format_duration,
    _DURATION_SHAPES,
    not_zero="write more than nothing, e.g. 30s",
)
SIZE = Unit("size > 0", units.size, units.format_size, _SIZE_SHAPES, not_zero="write a size such as 64KiB or 32MiB")
SHARE = Unit("share", units.share, lambda value: value, _SHARE_SHAPES)
SOME_SHARE = Unit(
    "share > 0", units.share, lambda value: value, _SHARE_SHAPES, not_zero="write a share above 0, e.g. 50%"
)
#: port 0: any free one
LISTEN = Unit(
    "host:port",
    lambda value: str(units.listen_address(value)),
    str,
    ({"type": "string", "pattern": r"^(?:\[[0-9a-fA-F:.]+\]|[^:\s\[\]]+):[0-9]+$"},),
)
HOST_AND_PORT = Unit("host:port", lambda value: str(units.address(value)), str, LISTEN.shapes)
