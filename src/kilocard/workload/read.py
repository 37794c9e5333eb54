"""Reads a trace of any known format; which one, its first line says."""

from __future__ import annotations

import csv
from collections.abc import Iterable

from kilocard.core.errors import TraceError
from kilocard.workload.trace import Trace
from kilocard.workload.trace_csv import READERS
from kilocard.workload.trace_jsonl import first_object, read_bailian, read_jsonl


def read_trace(lines: Iterable[str]) -> Trace:
    """Raises TraceError: the format is none that is known, or the problems of the file with their line numbers."""
    first, lines = first_object(lines)
    if first is not None:
        return read_bailian(lines) if "chat_id" in first else read_jsonl(lines)
    held = list(lines)
    header = next((text for raw in held if (text := raw.strip().removeprefix("\ufeff"))), "")
    names = {name.strip() for name in next(csv.reader([header]), [])}
    for columns, reader in READERS:
        if names.issuperset(columns):
            return reader(held)
    wanted = "; ".join(", ".join(columns) for columns, _ in READERS)
    raise TraceError(
        f"{'line 1' if header else 'nothing is in it'}: neither a JSON object (a kilocard, Mooncake or Bailian trace) "
        f"nor a header of a known CSV ({wanted})"
    )
