"""Log lines: in columns for people, one line each for files, pipes and journals."""

from __future__ import annotations

import io
import logging

from rich.console import Console

from kilocard.cli.running import log_handler

LONG = "replica smollm2/127.0.0.1:18100 is not let in yet: /v1/models lists emulated, not smollm2, and so on"


def written(*, terminal: bool) -> str:
    page = io.StringIO()
    console = Console(file=page, force_terminal=terminal, width=80, highlight=False, markup=False)
    log_handler(console).handle(logging.LogRecord("kilocard", logging.WARNING, __file__, 1, LONG, None, None))
    return page.getvalue()


def test_a_file_gets_one_line_for_each_thing_however_long() -> None:
    line = written(terminal=False)
    assert line.endswith(f" WARNING  {LONG}\n")
    assert line.count("\n") == 1
    assert "\x1b" not in line


def test_a_terminal_gets_columns() -> None:
    assert written(terminal=True).count("\n") > 1
