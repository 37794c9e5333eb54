"""What is printed has others' words in it: an engine's log line, a path, an address. Brackets are letters there."""

from __future__ import annotations

import pytest
from rich.console import Console
from rich.table import Table

from kilocard.cli.output import notes, results

FOREIGN = "ERROR [/opt/vllm/worker.py:31] [red]no[/] http://[::1]:8000 [bold"


@pytest.mark.parametrize("console", [notes, results])
def test_brackets_are_printed_as_they_are(console: Console) -> None:
    table = Table(box=None)
    table.add_column("why", no_wrap=True)
    table.add_row(FOREIGN)
    with console.capture() as said:
        console.print(FOREIGN, soft_wrap=True)
        console.print(FOREIGN, soft_wrap=True, style="red")
        console.print(table, width=200, crop=False)
    assert said.get().count(FOREIGN) == 3
