"""YAML text → nodes with line numbers, within limits. Pure; `yaml_document.py` makes values of them.

Events instead of PyYAML's own loaders, for four reasons: an event stream is read without recursion, so depth is
ours to limit; aliases are counted as what they expand to, so a "billion laughs" file is refused before it costs
anything; every node keeps its line; no tag can construct anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import yaml

from kilocard.spec.problems import InvalidClusterFile, Line, Problem

DEEPEST = 32
#: nodes of a document with its aliases expanded; a pool takes about 40
MOST_NODES = 1_000_000

# libyaml's parser is ten times as fast; PyYAML's own gives the same events.
_LOADER: type[yaml.CSafeLoader] | type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_STR_TAGS = {"!", "tag:yaml.org,2002:str"}
_KNOWN_TAGS = _STR_TAGS | {f"tag:yaml.org,2002:{name}" for name in ("int", "float", "bool", "null", "map", "seq")}


@dataclass(frozen=True, slots=True)
class ScalarNode:
    line: int
    text: str
    #: in quotes, in a block, or tagged !!str: text whatever it looks like
    quoted: bool


@dataclass(slots=True)
class ListNode:
    line: int
    items: list[Node] = field(default_factory=list)
    #: nodes in it, and levels
    size: int = 1
    depth: int = 1


@dataclass(slots=True)
class MapNode:
    line: int
    items: list[tuple[Node, Node]] = field(default_factory=list)
    size: int = 1
    depth: int = 1
    #: the key whose value comes next
    key: Node | None = None


Node = ScalarNode | ListNode | MapNode


def complaint(file: str | None, line: int | None, problem: str, advice: str) -> InvalidClusterFile:
    """An error about the text itself; `line` counts from 1."""
    return InvalidClusterFile([Problem((), place(file, line), problem, advice)])


def place(file: str | None, line: int | None) -> Line | None:
    if file is None:
        return line
    return file if line is None else f"{file}:{line}"


def read_nodes(text: str, file: str | None = None) -> Node | None:
    """The root node of the one document in `text`; None where it is empty. Raises InvalidClusterFile."""
    builder = _Builder(file)
    try:
        for event in _events(text):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(error, text, file) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1 if isinstance(error.position, int) else None
        raise complaint(
            file, line, f"has a character that YAML forbids ({error.character!r:.20})", "remove it; save as plain UTF-8"
        ) from None
    return builder.root


def _events(text: str) -> Iterator[yaml.Event]:
    loader = _LOADER(text)
    try:
        while (event := loader.get_event()) is not None:
            yield event
    finally:
        loader.dispose()


def _syntax_error(error: yaml.MarkedYAMLError, text: str, file: str | None) -> InvalidClusterFile:
    mark = error.problem_mark or error.context_mark
    row = None if mark is None else mark.line
    lines = text.split("\n")
    written = lines[row] if row is not None and row < len(lines) else ""
    number = None if row is None else row + 1
    if "\t" in written[: len(written) - len(written.lstrip())]:
        return complaint(file, number, "is indented with a tab", "use spaces; YAML forbids tabs here")
    said = error.problem or "can't be read"
    if "nesting depth" in said:
        return complaint(file, number, f"is nested deeper than {DEEPEST} levels", "make it flatter")
    context = f" ({error.context})" if error.context else ""
    advice = "check indentation, colons, brackets and quotes in this line and the one before"
    if "mapping values are not allowed" in said:
        advice = "quote values that contain a colon and a space, and indent keys of one section alike"
    elif "cannot start any token" in said:
        advice = "put values that begin with @, %, ` or a template's braces in quotes"
    return complaint(file, number, f"is not YAML: {said}{context}", advice)


class _Builder:
    """Puts events together; a stack instead of recursion."""

    def __init__(self, file: str | None) -> None:
        self.root: Node | None = None
        self._file = file
        self._stack: list[ListNode | MapNode] = []
        self._names: list[str | None] = []
        self._anchors: dict[str, Node | None] = {}
        self._documents = 0
        self._total = 0

    def take(self, event: yaml.Event) -> None:
        line = event.start_mark.line + 1 if event.start_mark else 1
        match event:
            case yaml.DocumentStartEvent():
                self._documents += 1
                if self._documents > 1:
                    raise complaint(self._file, line, "has a second document", "keep one; remove the line ---")
            case yaml.AliasEvent():
                self._add(self._aliased(str(event.anchor), line), line)
            case yaml.ScalarEvent():
                self._check_tag(event.tag, line)
                quoted = bool(event.style) or event.tag in _STR_TAGS
                scalar = ScalarNode(line, event.value, quoted)
                if event.anchor:
                    self._anchors[event.anchor] = scalar
                self._add(scalar, line)
            case yaml.SequenceStartEvent() | yaml.MappingStartEvent():
                self._check_tag(event.tag, line)
                if len(self._stack) >= DEEPEST:
                    raise self._too_deep(line)
                self._stack.append(ListNode(line) if isinstance(event, yaml.SequenceStartEvent) else MapNode(line))
                self._names.append(event.anchor)
                if event.anchor:
                    self._anchors[event.anchor] = None  # open: an alias to it now would be inside itself
            case yaml.SequenceEndEvent() | yaml.MappingEndEvent():
                node = self._stack.pop()
                if name := self._names.pop():
                    self._anchors[name] = node
                self._add(node, node.line)

    def _aliased(self, name: str, line: int) -> Node:
        if name not in self._anchors:
            raise complaint(
                self._file, line, f"uses *{name:.40}, which is defined nowhere above", f"define &{name:.40}"
            )
        node = self._anchors[name]
        if node is None:
            raise complaint(self._file, line, f"uses *{name:.40} inside itself", "write the value out")
        if not isinstance(node, ScalarNode):
            self._grow(node.size - 1, line)
        return node

    def _add(self, node: Node, line: int) -> None:
        self._grow(1, line)
        if not self._stack:
            self.root = node
            return
        parent = self._stack[-1]
        if isinstance(node, ScalarNode):
            parent.size += 1
        else:
            parent.size += node.size
            parent.depth = max(parent.depth, node.depth + 1)
            if parent.depth > DEEPEST:  # through aliases: what is open on the stack was checked before
                raise self._too_deep(line)
        if isinstance(parent, ListNode):
            parent.items.append(node)
        elif parent.key is None:
            parent.key = node
        else:
            parent.items.append((parent.key, node))
            parent.key = None

    def _grow(self, count: int, line: int) -> None:
        self._total += count
        if self._total > MOST_NODES:
            raise complaint(
                self._file, line, f"expands to more than {MOST_NODES:,} values", "use fewer aliases, or several files"
            )

    def _too_deep(self, line: int) -> InvalidClusterFile:
        return complaint(self._file, line, f"is nested deeper than {DEEPEST} levels", "make it flatter")

    def _check_tag(self, tag: str | None, line: int) -> None:
        if tag is not None and tag not in _KNOWN_TAGS:
            raise complaint(self._file, line, f"has the tag {tag:.60}", "remove it: tags mean nothing in this file")
