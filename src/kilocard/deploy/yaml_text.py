"""Plain values → YAML text as a person would write it: block style, keys in the order they were given."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

#: texts that some reader of YAML takes for something else: PyYAML writes 1e3 and 0o17 bare, and Go reads numbers
_ANOTHER_TYPE = re.compile(
    r"[-+]?0[xXoObB][0-9a-fA-F_]+|[-+]?(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)|[yYnN]|(?i:yes|no|on|off|true|false|null)|~|"
)

#: ends of lines in YAML 1.1 besides \n
_LINE_ENDS = frozenset("\r\x85\u2028\u2029")


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        """No anchors: each part of a rendered file can be read alone."""
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        """Lists stand two spaces in from their key."""
        super().increase_indent(flow, False)


def _text(dumper: _Dumper, value: str) -> yaml.ScalarNode:
    # Block style only where it keeps every byte: no space before a line's end, no tab or control character.
    if _ANOTHER_TYPE.fullmatch(value):
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="'")
    # Some readers take these for the end of a line, and what follows for another; escaped they are what they are.
    if set(value) & _LINE_ENDS:
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style='"')
    block = "\n" in value and "\t" not in value and not any(line != line.rstrip() for line in value.split("\n"))
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if block else None)


_Dumper.add_representer(str, _text)


def yaml_text(document: Mapping[str, Any] | Sequence[Any], head: str = "") -> str:
    """One document; `head` becomes comment lines above it."""
    comment = "".join(f"# {line}".rstrip() + "\n" for line in head.splitlines())
    body = yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110, default_flow_style=False)
    return comment + str(body)


def yaml_documents(documents: Sequence[Mapping[str, Any]], head: str = "") -> str:
    """Several documents of one file."""
    return yaml_text(documents[0], head) + "".join(f"---\n{yaml_text(document)}" for document in documents[1:])
