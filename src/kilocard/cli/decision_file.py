"""A decision log's file, line by line."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from kilocard.cli.output import notes
from kilocard.cli.trace_file import unpacked
from kilocard.core.errors import UsageError


def is_decision_log(first_line: str) -> bool:
    return '"kilocard_decision_log"' in first_line


def decision_lines(path: Path) -> Iterator[Any]:
    """A last line that is cut off (a gateway that was killed) is left out. Raises UsageError."""
    decode = msgspec.json.Decoder().decode
    try:
        with unpacked(path) as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    notes.print(f"{path}: line {number} is cut off and left out: was the gateway killed?")
                    return
                try:
                    yield decode(line)
                except msgspec.DecodeError as error:
                    raise UsageError(f"{path}, line {number}: not JSON ({error}); is this a decision log?") from error
    except (OSError, EOFError, zlib.error) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise UsageError(f"{path} can't be read: {reason}") from error
