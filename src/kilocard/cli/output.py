"""Where words go: results to stdout, everything else to stderr."""

from __future__ import annotations

import sys
from typing import Any

import msgspec
from rich.console import Console

# Square brackets are not markup: most of what is printed has others' words in it, and an engine's log line can have
# brackets as it likes. What is to be coloured within a line says markup=True and escapes what is not ours.
#: progress, warnings, errors
notes = Console(stderr=True, highlight=False, markup=False)
#: results for people; a pipe has no width, so tables need not be squeezed into 80 columns
results = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 160)


def print_json(document: Any) -> None:
    """One JSON document on stdout."""
    sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n")
    sys.stdout.buffer.flush()


def printable(name: str) -> str:
    """Names come from files and stores, but a terminal obeys some characters."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in name)
