"""Objects with marks → the text of a template, and what Helm makes of it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from kilocard.deploy.helm.knobs import Knob, Object
from kilocard.deploy.helm.values import Document, at
from kilocard.deploy.yaml_text import yaml_documents

#: a value as JSON, which is YAML too: no indentation, no special cases
_READS = re.compile(r'\{\{ index \.Values (?P<place>(?:"(?:[^"\\]|\\.)*" )+)\| toJson (?P<text>\| quote )?\}\}')
_BRACES = re.compile(r"\{\{")


def template(marked: list[Object], knobs: list[Knob], head: str) -> str:
    """Each mark becomes a look at the values. `marked`: objects of one file."""
    text = _BRACES.sub('{{ "{{" }}', yaml_documents(marked, head))
    by_mark = {str(knob.mark): knob for knob in knobs}
    if not by_mark:
        return text
    marks = "|".join(re.escape(mark) for mark in sorted(by_mark, key=len, reverse=True))
    whole = re.compile(rf"(?<=[ ])(?P<quote>'?)(?P<mark>{marks})(?P=quote)$", re.MULTILINE)
    return whole.sub(lambda found: _look(by_mark[found["mark"]], as_text=bool(found["quote"])), text)


def _look(knob: Knob, *, as_text: bool) -> str:
    place = " ".join(json.dumps(part, ensure_ascii=False) for part in knob.place)
    return f"{{{{ index .Values {place} | toJson {'| quote ' if as_text else ''}}}}}"


def filled_in(text: str, values: Document) -> str:
    """What Helm makes of a template of ours: it has nothing but looks at values and pairs of braces."""
    look: Callable[[re.Match[str]], str] = lambda found: _value(values, found)  # noqa: E731  # typed
    return _READS.sub(look, text).replace('{{ "{{" }}', "{{")


def _value(values: Document, found: re.Match[str]) -> str:
    place = tuple(json.loads(part) for part in re.findall(r'"(?:[^"\\]|\\.)*"', found["place"]))
    value: Any = at(values, place)
    return json.dumps(json.dumps(value)) if found["text"] else json.dumps(value)
