"""Kinds of values that become command lines: programs, and values of engines' flags."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Any

from kilocard.spec import units
from kilocard.spec.kinds import At, Schema, Text
from kilocard.spec.model import Scalar
from kilocard.spec.scalars import untyped
from kilocard.spec.units import UnitError, kind_of


@dataclass(frozen=True, slots=True)
class Words:
    """A command: a list of words, or one line that is split as a shell would."""

    label: str = "list of words, or one line"

    def read(self, value: object, at: At) -> tuple[str, ...]:
        advice = "write the program and its first arguments, e.g. [/opt/vllm/bin/vllm, serve]"
        if isinstance(value, str):
            try:
                words = shlex.split(Text(advice=advice).read(value, at))
            except ValueError as error:
                raise UnitError(f"can't be split into words ({str(error).lower()})", advice) from None
        elif isinstance(value, list | tuple):
            words = [Text(advice=advice).read(word, at / place) for place, word in enumerate(value)]
        else:
            raise UnitError(f"is {kind_of(value)}", advice)
        if not words:
            raise UnitError("is empty", advice)
        return tuple(words)

    def dump(self, value: Any) -> object:
        return list(value)

    def schema(self, definitions: dict[str, Schema]) -> Schema:
        words: Schema = {"type": "array", "items": {"type": ["string", "number"]}, "minItems": 1}
        return {"anyOf": [words, {"type": "string", "minLength": 1}]}


@dataclass(frozen=True, slots=True)
class FlagValue:
    """The value of an engine's flag: text, a number, true or false, nothing, or a list of these."""

    label: str = "text, number, true/false, or a list of these"

    def read(self, value: object, at: At) -> Scalar | tuple[Scalar, ...]:
        if isinstance(value, list | tuple):
            return tuple(self._one(item, at / place) for place, item in enumerate(value))
        return self._one(value, at)

    def _one(self, value: object, at: At) -> Scalar:
        value = untyped(value)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return Text(longest=65_536, may_be_empty=True).read(value, at)
        if isinstance(value, int | float):
            units.number(value, "write a finite number")
            return value
        raise UnitError(f"is {kind_of(value)}", "write one value or a list of values; JSON goes into single quotes")

    def dump(self, value: Any) -> object:
        return list(value) if isinstance(value, tuple) else value

    def schema(self, definitions: dict[str, Schema]) -> Schema:
        one: Schema = {"type": ["string", "number", "boolean", "null"]}
        return {"anyOf": [one, {"type": "array", "items": one}]}
