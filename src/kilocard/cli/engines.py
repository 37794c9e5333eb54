"""`kilocard engines`: which engine for what, and why."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.table import Table

from kilocard.cli.output import print_json, results
from kilocard.engines.choice import CHOICES
from kilocard.engines.registry import ENGINES


def engines(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Which inference engine to take, with the reasons. What each can do here is in docs/engines.md."""
    if json:
        rows = [
            asdict(each)
            | {
                "prefix_cache": ENGINES[each.name].capabilities.prefix_cache,
                "aborts_on_disconnect": ENGINES[each.name].capabilities.aborts_on_disconnect,
                "needs_gpu": ENGINES[each.name].capabilities.needs_gpu,
            }
            for each in CHOICES
        ]
        print_json({"engines": rows})
        return
    table = Table(title="Which engine", show_lines=True)
    for heading in ("engine", "effort", "what makes it fast", "fits", "costs you"):
        table.add_column(heading, overflow="fold")
    for each in CHOICES:
        table.add_row(each.name, each.effort, each.throughput, each.fits, each.cost)
    results.print(table)
    for each in CHOICES:
        results.print(f"{each.name}: {each.reason}")
