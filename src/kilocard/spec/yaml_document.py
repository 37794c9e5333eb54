"""YAML text → plain values, with a line for every path, twins among keys reported, `${NAME}` filled in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from kilocard.spec.problems import Line, Path
from kilocard.spec.scalars import FromEnvironment, resolve
from kilocard.spec.units import show
from kilocard.spec.yaml_nodes import ListNode, MapNode, Node, ScalarNode, place, read_nodes

_VARIABLE = re.compile(r"\$(\$\{)|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^{}]*))?\}|\$\{([^}\n]{0,40}\}?)", re.ASCII)


@dataclass(slots=True)
class Document:
    """One file's content."""

    value: object = None
    lines: dict[Path, Line] = field(default_factory=dict)
    #: how unquoted numbers were written
    texts: dict[Path, str] = field(default_factory=dict)
    #: (path, problem, advice) for what is wrong already
    found: list[tuple[Path, str, str]] = field(default_factory=list)


def read_document(text: str, *, env: Mapping[str, str] | None = None, file: str | None = None) -> Document:
    """The document in `text`; `file` goes into messages and lines. Raises InvalidClusterFile where it is
    not YAML; twins among keys and variables that are not set are in `found`, so that the parser can go on.

    Strings may hold `${NAME}` and `${NAME:-default}` (used where NAME is unset or empty), filled in from `env`;
    `$${` stands for `${`. Keys are always text, as they are written. `<<: *anchor` merges mappings.
    """
    root = read_nodes(text, file)
    reader = _Reader(env or {}, file)
    if root is not None:
        reader.document.value = reader.value(root, ())
    return reader.document


class _Reader:
    def __init__(self, env: Mapping[str, str], file: str | None) -> None:
        self.document = Document()
        self._env = env
        self._file = file

    def value(self, node: Node, path: Path) -> object:
        if path:
            # A key's line, where there is one, is set already: it says more than where its value begins.
            self.document.lines.setdefault(path, self._line(node))
        if isinstance(node, ListNode):
            return [self.value(item, (*path, index)) for index, item in enumerate(node.items)]
        if isinstance(node, MapNode):
            return self._mapping(node, path)
        text = self._filled(node.text, path)
        if text is not None:
            return FromEnvironment(text)
        text = node.text.replace("$${", "${")
        if node.quoted:
            return text
        value = resolve(text)
        if isinstance(value, int | float) and not isinstance(value, bool):
            self.document.texts[path] = node.text
        return value

    def _line(self, node: Node) -> Line:
        line = place(self._file, node.line)
        assert line is not None
        return line

    def _mapping(self, node: MapNode, path: Path) -> dict[str, object]:
        result: dict[str, object] = {}
        first: dict[str, int] = {}
        for key, item in node.items:
            if not isinstance(key, ScalarNode):
                self.document.found.append(
                    (path, "has a mapping or a list as a key", "put template braces {{ }} in quotes")
                )
            elif key.text == "<<" and not key.quoted:
                continue
            elif key.text in first:
                problem = f"is there twice (first in line {first[key.text]}, again in line {key.line})"
                self.document.found.append(((*path, key.text), problem, "remove one, or merge them"))
            else:
                first[key.text] = key.line
                here = (*path, key.text)
                self.document.lines[here] = self._line(key)
                result[key.text] = self.value(item, here)
        for key, item in node.items:
            if isinstance(key, ScalarNode) and key.text == "<<" and not key.quoted:
                self._merge(item, path, result)
        return result

    def _merge(self, node: Node, path: Path, result: dict[str, object]) -> None:
        """`<<`: keys that the mapping itself doesn't have; the first source that has one gives it."""
        for source in node.items if isinstance(node, ListNode) else [node]:
            if not isinstance(source, MapNode):
                self.document.found.append(
                    (path, "merges (<<) something that is no mapping", "write <<: *anchor of a mapping")
                )
                continue
            further = []
            for key, item in source.items:
                if not isinstance(key, ScalarNode):
                    continue  # reported where the source stands
                if key.text == "<<" and not key.quoted:
                    further.append(item)
                elif key.text not in result:
                    result[key.text] = self.value(item, (*path, key.text))
            for item in further:
                self._merge(item, path, result)

    def _filled(self, text: str, path: Path) -> str | None:
        """`text` with its variables filled in; None where it has none."""
        if "${" not in text:
            return None
        used = False

        def fill(match: re.Match[str]) -> str:
            nonlocal used
            escaped, name, default, broken = match.groups()
            if escaped:
                return escaped
            used = True
            if broken is not None:
                self.document.found.append(
                    (path, f"has {show('${' + broken)}", "write ${NAME} or ${NAME:-default}; $${ for ${")
                )
                return ""
            value = self._env.get(name, "")
            if not value and default is not None:
                return default
            if name not in self._env:
                self.document.found.append(
                    (path, f"uses ${{{name}}}, which is not set", f"set it, or write ${{{name}:-default}}")
                )
            return value

        filled = _VARIABLE.sub(fill, text)
        return filled if used else None
