"""`kilocard bench --compare A B`: reads two runs' folders and says what changed."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kilocard.bench.compare import Comparison, Row, compare
from kilocard.bench.document import Results
from kilocard.bench.report.compare_page import compare_html
from kilocard.bench.requests_log import Line, read
from kilocard.bench.results import load
from kilocard.bench.units import number, seconds
from kilocard.cli.bench_table import STYLES
from kilocard.cli.output import notes, print_json
from kilocard.cli.output import results as console
from kilocard.core.errors import UsageError

COLOURS = {"faster": "green", "slower": "red", "noise": "dim", "unknown": "dim", "different work": "yellow"}


def compare_runs(a: Path, b: Path, *, as_json: bool = False, html: Path | None = None) -> Comparison:
    """Prints the comparison; with `html` writes the page too. A and B are folders of --out, or their results.json.

    The caller decides what `.worse` is worth: an exit code, or nothing. Raises UsageError.
    """
    (first, requests_a), (second, requests_b) = _read(a), _read(b)
    comparison = compare(first, second, names=(str(a), str(b)), requests=(requests_a, requests_b))
    if html is not None:
        try:
            html.write_text(compare_html(comparison, first, second), encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{html}: {error.strerror or error}") from None
        notes.print(f"Written: {html}")
    if as_json:
        print_json(comparison)
    else:
        show(comparison)
    return comparison


def show(comparison: Comparison, out: Console = console) -> None:
    out.print(Text(f"A  {comparison.a}\nB  {comparison.b}", style="bold"))
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 1))
    for name, right in (("", False), ("", False), ("A", True), ("B", True), ("change", True), ("95 %", True)):
        table.add_column(name, justify="right" if right else "left", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("", style="dim")
    before = None
    for row in comparison.rows:
        name = row.load if row.load != before else ""
        verdict = Text(row.verdict, style=COLOURS[row.verdict])
        numbers = (value(row, row.a), value(row, row.b), change(row.change), interval(row))
        table.add_row(name, row.metric, *numbers, verdict, row.why)
        before = row.load
    out.print(table)
    for sentence in comparison.says:
        out.print(Text.assemble(("→ ", "green"), sentence))
    for severity, style in STYLES.items():
        for finding in comparison.findings:
            if finding.severity == severity:
                out.print(Text(f"{severity}: {finding.text}", style=style))


def value(row: Row, of: float) -> str:
    return number(of) if row.metric.endswith("per_s") else seconds(of)


def change(share: float | None) -> str:
    return "–" if share is None else f"{share:+.1%}"


def interval(row: Row) -> str:
    return "–" if row.low is None or row.high is None else f"{row.low:+.1%} … {row.high:+.1%}"


def _read(place: Path) -> tuple[Results, list[Line]]:
    """results.json, and requests.jsonl beside it if it is there."""
    path = place / "results.json" if place.is_dir() else place
    try:
        document = load(path.read_bytes(), str(path))
        log = path.with_name("requests.jsonl")
        if not log.exists():
            return document, []
        with log.open("rb") as lines:
            return document, list(read(lines, str(log)))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}: give a folder that kilocard bench --out wrote") from None
