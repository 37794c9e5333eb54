"""Which values may be changed in a release, found by trying: the Kubernetes renderer is run with a mark in their place.

A value is a knob if the mark comes out unchanged, as whole scalars, and nothing else differs. Then a template that
reads the value there is right for every value that the renderer only passes through; `schema.py` lets no others in.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import yaml

from kilocard.core.errors import KilocardError
from kilocard.deploy.helm.values import Document, Place, at, changed, leaves
from kilocard.deploy.kubernetes.render import objects
from kilocard.deploy.target import RenderOptions
from kilocard.spec.parse import parse

Object = dict[str, Any]
Files = dict[str, list[Object]]

#: what is tried; the rest is shape: which objects there are, or a number that others are reckoned from
CANDIDATES = (
    "pools.*.image", "pools.*.model", "pools.*.args.*", "pools.*.env.*", "pools.*.served_model_name",
    "pools.*.max_in_flight", "pools.*.replicas.*", "pools.*.placement.node_selector.*",
    "pools.*.placement.runtime_class", "models.*.pools.*", "tenants.*.limits.*", "tenants.*.model_limits.*",
    "kubernetes.image", "kubernetes.hub_secret", "kubernetes.monitoring_namespace", "kubernetes.model_cache.claim",
)  # fmt: skip
#: texts that pass through: begins like a name, so it is no path, no flag and not empty; printable ASCII without $,
#: which is filled in
PLAIN_TEXT = r"^[A-Za-z0-9][ -#%-~]*$"
#: numbers that Helm and kilocard write alike have a fraction, and no exponent
FRACTIONS = (0.001, 1000.0)
#: libyaml's where it is there: ten times as fast
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
#: in front of every mark: a word that no cluster file has
WORD = "zqmark"
#: numbers as marks begin here: unlikely as a setting, and small enough for every key
FIRST_NUMBER = 70_001


@dataclass(frozen=True, slots=True)
class Knob:
    #: its place among the values
    number: int
    place: Place
    #: str, int or float
    kind: type
    mark: str | int | float


def knobs(document: Document, options: RenderOptions) -> list[Knob]:
    """`document`: the chart's values as they are."""
    plain = comparable(rendered(document, options))
    units: dict[Place, list[Knob]] = {}
    for knob in _candidates(document):
        # `min` and `max` go together: one mark may not pass the other
        bound = knob.place[-1] in {"min", "max"}
        units.setdefault(knob.place[:-1] if bound else knob.place, []).append(knob)
    return sorted(_passed_through(list(units.values()), document, plain, options), key=lambda knob: knob.number)


def _passed_through(units: list[list[Knob]], document: Document, plain: Any, options: RenderOptions) -> list[Knob]:
    """All at once where all are knobs, which is usual; else each half for itself."""
    if not units:
        return []
    together = [knob for unit in units for knob in unit]
    originals = {str(knob.mark): (knob, at(document, knob.place)) for knob in together}
    try:
        after = comparable(marked(document, together, options))
    except KilocardError:
        after = None  # not any value of its kind will do
    seen: set[str] = set()
    if after is not None and _swapped(after, originals, seen) == plain and len(seen) == len(together):
        return together
    half = len(units) // 2
    if not half:
        return []
    return [
        *_passed_through(units[:half], document, plain, options),
        *_passed_through(units[half:], document, plain, options),
    ]


def marked(document: Document, found: list[Knob], options: RenderOptions) -> Files:
    """The objects with marks at all knobs."""
    return rendered(changed(document, {knob.place: knob.mark for knob in found}), options)


def rendered(document: Document, options: RenderOptions) -> Files:
    return objects(parse(document), options)


def _candidates(document: Document) -> Iterator[Knob]:
    for number, (place, value) in enumerate(leaves(document)):
        path = ".".join(part.replace(".", "_") for part in place)
        if isinstance(value, bool) or not any(fnmatchcase(path, each) for each in CANDIDATES):
            continue
        if isinstance(value, str) and not re.match(PLAIN_TEXT, value):
            continue
        if isinstance(value, float) and (value.is_integer() or not FRACTIONS[0] <= value <= FRACTIONS[1]):
            continue
        if isinstance(value, int):
            yield Knob(number, place, int, FIRST_NUMBER + number)
        elif isinstance(value, float):
            yield Knob(number, place, float, FIRST_NUMBER + number + 0.5)
        elif isinstance(value, str):
            yield Knob(number, place, str, f"{WORD}{number}{WORD}")


def comparable(value: Any) -> Any:
    """Objects with the files in them read: how a text is laid out makes no difference."""
    if isinstance(value, Mapping):
        if value.get("kind") == "ConfigMap":
            value = {**value, "data": {name: yaml.load(text, _LOADER) for name, text in value["data"].items()}}  # noqa: S506  # a safe one
        return {key: comparable(item) for key, item in value.items()}
    return [comparable(item) for item in value] if isinstance(value, list) else value


def _swapped(value: Any, originals: Mapping[str, tuple[Knob, Any]], seen: set[str]) -> Any:
    """`value` with the originals where their marks are, as numbers or as the texts of numbers. Notes what it saw."""
    if isinstance(value, Mapping):
        return {key: _swapped(item, originals, seen) for key, item in value.items()}
    if isinstance(value, list):
        return [_swapped(item, originals, seen) for item in value]
    knob, original = originals.get(str(value), (None, None))
    if knob is None or type(value) not in {str, knob.kind}:
        return value
    seen.add(str(knob.mark))
    return str(original) if isinstance(value, str) else original
