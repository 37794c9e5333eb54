"""CSV traces: Azure's LLM inference traces (2023, 2024) and BurstGPT. Columns go by name; others are passed over."""

from __future__ import annotations

import calendar
import csv
import re
from collections.abc import Callable, Iterable, Mapping

from kilocard.workload.request import WorkloadRequest
from kilocard.workload.trace import Reading, Trace, numbered_lines

Row = Mapping[str, str]

AZURE_COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
BURSTGPT_COLUMNS = ("Timestamp", "Model", "Request tokens", "Response tokens")

#: 2023-11-16 18:17:03.9799600, and with an offset in the files of 2024; the clock counts in 100 ns
_WALL_CLOCK = re.compile(r"(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?\s*(?:Z|([+-])(\d\d):?(\d\d))?")


def read_azure(lines: Iterable[str]) -> Trace:
    """TIMESTAMP, ContextTokens, GeneratedTokens. The first request is at 0 s.

    Raises TraceError that lists the problems with their line numbers.
    """
    reading = Reading("azure")
    seen: list[tuple[int, int, int, int]] = []
    for line, row in _rows(lines, AZURE_COLUMNS, reading):
        at_ns = _nanoseconds(row["TIMESTAMP"])
        if at_ns is None:
            reading.problem(line, f"TIMESTAMP is {row['TIMESTAMP']!r}, not a date and time")
        asked = reading.tokens(line, "ContextTokens", row["ContextTokens"])
        answered = reading.tokens(line, "GeneratedTokens", row["GeneratedTokens"])
        if at_ns is not None and asked is not None and answered is not None:
            seen.append((line, at_ns, asked, answered))
    # Subtracted as whole numbers: a date in seconds has no digits left for 100 ns.
    start = min((at_ns for _, at_ns, _, _ in seen), default=0)
    for line, at_ns, asked, answered in seen:
        reading.add(line, WorkloadRequest((at_ns - start) / 1e9, asked, answered))
    return reading.trace()


def read_burstgpt(lines: Iterable[str]) -> Trace:
    """Timestamp (s), Model, Request tokens, Response tokens, and Session ID where a release has it.

    Failures, which have 0 response tokens, are counted as unanswered.
    """
    reading = Reading("burstgpt")
    for line, row in _rows(lines, BURSTGPT_COLUMNS, reading):
        at_s = reading.time(line, "Timestamp", row["Timestamp"], 1)
        asked = reading.tokens(line, "Request tokens", row["Request tokens"])
        answered = reading.tokens(line, "Response tokens", row["Response tokens"])
        if at_s is not None and asked is not None and answered is not None:
            session = row.get("Session ID") or row.get("SessionID") or None
            reading.add(line, WorkloadRequest(at_s, asked, answered, session=session, model=row["Model"] or None))
    return reading.trace()


#: by the columns that a header must have
READERS: tuple[tuple[tuple[str, ...], Callable[[Iterable[str]], Trace]], ...] = (
    (AZURE_COLUMNS, read_azure),
    (BURSTGPT_COLUMNS, read_burstgpt),
)


def _rows(lines: Iterable[str], columns: tuple[str, ...], reading: Reading) -> Iterable[tuple[int, Row]]:
    numbered = numbered_lines(lines)
    if not numbered:
        reading.problem(1, f"no header with {', '.join(columns)}")
        return
    header_line, header_text = numbered[0]
    header = [name.strip() for name in next(csv.reader([header_text]))]
    if missing := [name for name in columns if name not in header]:
        reading.problem(header_line, f"the header lacks {', '.join(missing)}")
        return
    for line, text in numbered[1:]:
        try:
            values = next(csv.reader([text], strict=True))
        except csv.Error as error:
            reading.problem(line, f"not CSV: {error}")
            continue
        if len(values) != len(header):
            reading.problem(line, f"{len(values)} columns, the header has {len(header)}")
        else:
            yield line, dict(zip(header, (value.strip() for value in values), strict=True))


def _nanoseconds(text: str) -> int | None:
    """Since 1970, a wall clock without an offset taken as UTC; None if it is no date."""
    found = _WALL_CLOCK.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second = (int(found[place]) for place in range(1, 7))
    if not (year >= 1970 and 1 <= month <= 12 and 1 <= day <= calendar.monthrange(year, month)[1]):
        return None
    if hour > 23 or minute > 59 or second > 60:
        return None
    seconds = calendar.timegm((year, month, day, hour, minute, second))
    if found[8]:
        offset = int(found[9]) * 3600 + int(found[10]) * 60
        seconds += -offset if found[8] == "+" else offset
    return seconds * 1_000_000_000 + int((found[7] or "").ljust(9, "0"))
