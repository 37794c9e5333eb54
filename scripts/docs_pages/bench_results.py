"""docs/reference/bench-results.md and its JSON Schema, out of kilocard.bench.document."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from kilocard.bench.compare import Comparison, Row
from kilocard.bench.document import (
    About,
    ClientSeen,
    EngineSeen,
    Finding,
    Goodput,
    Histogram,
    Knee,
    Lengths,
    PointResult,
    Results,
    Saturation,
    Series,
    Slo,
    Spread,
    TargetSeen,
)
from kilocard.bench.requests_log import Row as RequestRow
from kilocard.bench.results import json_schema

INTRO = """\
# Results of a load test

<!-- Written by scripts/generate-docs from src/kilocard/bench/document.py. Edit the descriptions there, not here. -->

A load test with `--out DIR` writes `results.json` (all of this), `requests.jsonl` (every request) and `report.html`;
`--json` prints the first on stdout. How to read them, and how each number comes about: [what the numbers of a load test
mean](../bench-results.md). [JSON Schema](bench-results.schema.json).

Names end in their unit: `_s` seconds, `_per_s` per second of wall time. Shares are 0 to 1. `null` means not seen or not
given, never 0. A later version may add fields; one that changes the meaning of a field has another `schema`.
"""

SECTIONS = (
    (Results, "The top"), (TargetSeen, "`target`"), (About, "`about`"), (Slo, "`slo`"), (PointResult, "`points[]`"),
    (Spread, "`points[].ttft_s`, `tpot_s`, `itl_s`, `e2e_s`"), (Lengths, "`points[].lengths.*`"),
    (Goodput, "`points[].goodput`"), (Saturation, "`points[].saturation`"), (EngineSeen, "`points[].engine`"),
    (ClientSeen, "`points[].client`"), (Histogram, "`points[].histograms.*`"), (Series, "`points[].series`"),
    (Knee, "`knee`"), (Finding, "`findings[]`"), (RequestRow, "Lines of `requests.jsonl`"),
    (Comparison, "`--compare A B --json`"), (Row, "`rows[]` of a comparison"),
)  # fmt: skip


def bench_results() -> dict[str, str]:
    parts = [INTRO, *(_section(struct, title) for struct, title in SECTIONS)]
    schema = json.dumps(json_schema(), indent=1, sort_keys=True) + "\n"
    return {
        "docs/reference/bench-results.md": "\n".join(parts),
        "docs/reference/bench-results.schema.json": schema,
    }


def _section(struct: type[msgspec.Struct], title: str) -> str:
    hints = get_type_hints(struct, include_extras=True)
    lines = [f"## {title}", "", _doc(struct), "", "| field | type | meaning |", "|---|---|---|"]
    for each in msgspec.structs.fields(struct):
        kind, meaning = _unwrapped(hints[each.name])
        lines.append(f"| `{each.encode_name}` | {_type(kind)} | {meaning.replace('|', '&#124;') or '–'} |")
    return "\n".join([*lines, ""])


def _doc(struct: type[msgspec.Struct]) -> str:
    return (struct.__doc__ or "").strip()


def _unwrapped(hint: Any) -> tuple[Any, str]:
    """The type, and its description."""
    if get_origin(hint) is Annotated:
        kind, *notes = get_args(hint)
        return kind, next((note.description or "" for note in notes if isinstance(note, msgspec.Meta)), "")
    return hint, ""


def _type(kind: Any) -> str:
    if get_origin(kind) is Annotated:
        return _type(get_args(kind)[0])
    if kind is type(None):
        return "null"
    if get_origin(kind) is Literal:
        return " or ".join(f"`{value}`" for value in get_args(kind))
    arguments = get_args(kind)
    if get_origin(kind) is list:
        return f"list of {_type(arguments[0])}"
    if get_origin(kind) is dict:
        return f"{{name: {_type(arguments[1])}}}"
    if arguments:
        return " or ".join(_type(each) for each in arguments)
    names = {str: "text", int: "whole number", float: "number", bool: "true or false", Any: "anything"}
    return names.get(kind) or f"object {kind.__name__}"
