"""docs/reference/cli.md: every command and option, out of the program itself. No terminal has a say in it."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main

from kilocard.cli.main import app

INTRO = """\
# The command line

<!-- Written by scripts/generate-docs from src/kilocard/cli/. Edit the commands there, not this page. -->

Each command has `--help`. Results go to stdout, everything else to stderr; `--json` prints one JSON document.

| exit code | means |
|---|---|
| 0 | fine |
| 1 | findings or a failure |
| 2 | usage, or a cluster file with errors |
| 130 | stopped by a second Ctrl-C |

Environment: `KILOCARD_HOME` (models and logs, `~/.cache/kilocard` unless set), `KILOCARD_LOG` (level of log lines:
`DEBUG`, `INFO`, `WARNING`; `INFO` unless set), `KILOCARD_KUBERNETES_API` (an API server, [for gateways outside the
cluster](../discovery.md#kubernetes)). Commands that are planned and not there yet are in
[known flaws](../known-flaws.md).
"""

#: Python's type: what a person calls it
TYPES = {int: "whole number", float: "number", str: "text", Path: "path", bool: "flag"}


def cli() -> dict[str, str]:
    parts = [INTRO]
    for words, command in commands("kilocard", typer.main.get_command(app)):
        parts.append(_section(words, command))
    return {"docs/reference/cli.md": "\n".join(parts)}


def commands(words: str, command: Any) -> Iterator[tuple[str, Any]]:
    """Each command with the words that call it, in the order of `kilocard --help`."""
    below = getattr(command, "commands", None)
    if below is None:
        yield words, command
        return
    for name, child in below.items():
        yield from commands(f"{words} {name}", child)


def _section(words: str, command: Any) -> str:
    arguments = [param for param in command.params if _is_argument(param)]
    options = [param for param in command.params if not _is_argument(param)]
    usage = [words, *(_in_usage(param) for param in arguments), *(["[OPTIONS]"] if options else [])]
    lines = [f"## `{words}`", "", "```text", " ".join(usage), "```", "", _text(command.help), ""]
    if command.params:
        hints = typing.get_type_hints(command.callback)
        lines += ["| option | takes | default | meaning |", "|---|---|---|---|"]
        lines += [_row(param, hints[param.name]) for param in [*arguments, *options]]
        lines.append("")
    return "\n".join(lines)


def _is_argument(param: Any) -> bool:
    return not any(name.startswith("-") for name in param.opts)


def _in_usage(param: Any) -> str:
    name = param.name.upper()
    return name if param.required else f"[{name}]"


def _row(param: Any, hint: Any) -> str:
    name = param.name.upper() if _is_argument(param) else ", ".join(param.opts)
    kind = _kind(hint)
    if param.required:
        default = "**required**"
    elif param.default is None or kind == "flag":
        default = "–"
    else:
        default = f"`{param.default}`"
    cells = (f"`{name}`", kind, default, _text(param.help))
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _kind(hint: Any) -> str:
    if isinstance(hint, types.UnionType):
        (hint,) = [part for part in typing.get_args(hint) if part is not type(None)]
    if typing.get_origin(hint) is list:
        return f"{_kind(typing.get_args(hint)[0])}, may be repeated"
    if typing.get_origin(hint) is tuple:
        return " and ".join(_kind(part) for part in typing.get_args(hint))
    return TYPES[hint]


def _text(help: str | None) -> str:
    return "\n".join(line.strip() for line in (help or "").strip().splitlines())
