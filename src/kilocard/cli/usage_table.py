"""Lines of usage as a table, as CSV and as JSON."""

from __future__ import annotations

from typing import Any

from rich.table import Table
from rich.text import Text

from kilocard.cli.output import printable, results
from kilocard.tenancy.usage_report import Line, total

#: columns behind those that the report is broken down by
FIGURES = (
    "requests", "errors", "estimated", "prompt_tokens", "cached_tokens", "output_tokens", "total_tokens", "mean_ttft_s",
)  # fmt: skip
#: a spreadsheet takes a cell that begins so for a formula (OWASP, "CSV Injection")
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def as_dict(by: tuple[str, ...], line: Line) -> dict[str, Any]:
    return dict(zip((*by, *FIGURES), (*line.group, *_figures(line)), strict=True))


def as_csv(by: tuple[str, ...], lines: list[Line]) -> str:
    """RFC 4180: texts in quotes, figures without; what is not known is an empty field. A text that a spreadsheet would
    run gets an apostrophe before it."""
    rows = [",".join(map(_quoted, (*by, *FIGURES)))]
    for line in lines:
        names = [_quoted(f"'{name}" if name.startswith(_FORMULA) else name) for name in line.group]
        rows.append(",".join((*names, *("" if value is None else str(value) for value in _figures(line)))))
    return "".join(f"{row}\r\n" for row in rows)


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def show(by: tuple[str, ...], lines: list[Line]) -> None:
    table = Table(box=None, pad_edge=False, show_footer=bool(by))
    everything = total(lines)
    for place, name in enumerate(by):
        table.add_column(name, footer="all" if place == 0 else "", overflow="fold")
    sums = [_shown(value) for value in _figures(everything)]
    for name, figure in zip(FIGURES, sums, strict=True):
        table.add_column(
            name.replace("_tokens", "").replace("_s", " s").replace("_", " "), footer=figure, justify="right"
        )
    for line in lines:
        table.add_row(*(Text(printable(name) or "–") for name in line.group), *map(_shown, _figures(line)))
    results.print(table)
    if everything.estimated:
        results.print(
            f"{everything.estimated} request(s) with estimated tokens: their engine did not count, or they ended "
            "before it could say.",
            style="dim",
        )


def _figures(line: Line) -> tuple[int | float | None, ...]:
    mean = line.mean_ttft
    return (
        line.requests, line.errors, line.estimated, line.prompt_tokens, line.cached_tokens, line.output_tokens,
        line.prompt_tokens + line.output_tokens, None if mean is None else round(mean, 6),
    )  # fmt: skip


def _shown(value: int | float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.3f}" if isinstance(value, float) else f"{value:,}"
