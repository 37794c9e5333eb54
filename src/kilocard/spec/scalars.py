"""What an unquoted YAML word means. One rule for the reader and for values that come out of the environment.

true/yes/on and false/no/off are booleans (YAML 1.1, as PyYAML and kubectl read them). Numbers are YAML 1.2's: `1e-5`
is a number, while `010`, `1:30` and `2024-01-01` stay text, because reading them as 8, 90 and a date helps nobody.
"""

from __future__ import annotations

import re

from kilocard.spec.model import Scalar

_WORDS: dict[str, bool | None] = {"": None, "~": None}
for _value, _names in ((None, ["null"]), (True, ["true", "yes", "on"]), (False, ["false", "no", "off"])):
    for _name in _names:
        _WORDS |= dict.fromkeys((_name, _name.capitalize(), _name.upper()), _value)

_WHOLE = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,39})", re.ASCII)
_BASED = re.compile(r"0x[0-9a-fA-F]{1,32}|0o[0-7]{1,40}", re.ASCII)
_FLOAT = re.compile(r"[-+]?(?:(?:0|[1-9][0-9]{0,39})(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]{1,4})?", re.ASCII)
_SPECIAL = {f"{sign}.{name}" for sign in ("", "-", "+") for name in ("inf", "Inf", "INF")} | {".nan", ".NaN", ".NAN"}


class FromEnvironment(str):
    """Text that came out of `${NAME}`: it counts as unquoted, so that `"${MAX}"` can be a number."""

    __slots__ = ()


def resolve(text: str) -> Scalar:
    """The value of an unquoted YAML scalar. Never raises; what is nothing else is text."""
    if text in _WORDS:
        return _WORDS[text]
    if _WHOLE.fullmatch(text):
        return int(text)
    if _BASED.fullmatch(text):
        return int(text, 0)
    if _FLOAT.fullmatch(text):
        return float(text)
    if text in _SPECIAL:
        return float(text.replace(".", "", 1))
    return text


def untyped(value: object) -> object:
    """`value`, or what it means where it came out of the environment."""
    return resolve(str(value)) if isinstance(value, FromEnvironment) else value
