"""A recorded workload, read from the lines of a file. Which format it is, its first line says.

| format | a line | carries |
|---|---|---|
| kilocard | Mooncake's, with more keys (trace_jsonl.py) | all that a WorkloadRequest has |
| mooncake | JSON: timestamp (ms), lengths, hash_ids of 512 tokens | shared prefixes |
| bailian | JSON: chat_id, parent_chat_id, timestamp (s), lengths, hash_ids of 16 tokens | sessions, shared prefixes |
| azure | CSV: TIMESTAMP (wall clock), ContextTokens, GeneratedTokens | lengths |
| burstgpt | CSV: Timestamp (s), Model, Request tokens, Response tokens, … | lengths, models, perhaps sessions |
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from kilocard.core.errors import TraceError
from kilocard.workload.request import WorkloadRequest

#: further problems are counted, not printed
MOST_PRINTED = 50


@dataclass(frozen=True, slots=True)
class Trace:
    #: in order of at_s; the order of the file among equals
    requests: tuple[WorkloadRequest, ...]
    format: str
    #: requests that can't be asked again since they had no answer (BurstGPT marks failures so)
    unanswered: int = 0


@dataclass(slots=True)
class Reading:
    """Collects requests and problems of one file, line by line."""

    format: str
    requests: list[WorkloadRequest] = field(default_factory=list)
    unanswered: int = 0
    _problems: list[str] = field(default_factory=list)

    def problem(self, line: int, text: str) -> None:
        """`line` counts from 1, as editors do."""
        self._problems.append(f"line {line}: {text}")

    def tokens(self, line: int, name: str, value: object) -> int | None:
        """A count of tokens, 0 or more; None after the problem was noted."""
        found = number(value)
        if found is not None and found >= 0 and found == int(found):
            return int(found)
        self.problem(line, f"{name} is {value!r}, not a count of tokens")
        return None

    def time(self, line: int, name: str, value: object, unit_s: float) -> float | None:
        """Seconds, 0 or more, to the nanosecond; None after the problem was noted."""
        found = number(value)
        if found is not None and found >= 0:
            return round(found * unit_s if unit_s >= 1 else found / round(1 / unit_s), 9)
        self.problem(line, f"{name} is {value!r}, not a time of 0 or more")
        return None

    def add(self, line: int, request: WorkloadRequest) -> None:
        """Take it, unless it asks nothing, or nothing came back: what has no length can't be replayed."""
        if request.output_tokens == 0:
            self.unanswered += 1
        elif request.input_tokens == 0:
            self.problem(line, "no input tokens")
        else:
            self.requests.append(request)

    def trace(self) -> Trace:
        """Raises TraceError that lists the problems."""
        if self._problems:
            shown = self._problems[:MOST_PRINTED]
            if more := len(self._problems) - len(shown):
                shown.append(f"… and {more} more")
            raise TraceError(f"not a {self.format} trace:\n" + "\n".join(shown))
        if not self.requests:
            raise TraceError(f"no request that was answered is in this {self.format} trace")
        return Trace(with_turns(sorted(self.requests, key=lambda each: each.at_s)), self.format, self.unanswered)


def number(value: object) -> float | None:
    """A finite number, or a text that is one."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def with_turns(ordered: Sequence[WorkloadRequest]) -> tuple[WorkloadRequest, ...]:
    """Number the turns of each session from 0, in the order given."""
    turns: dict[str, int] = {}
    numbered = []
    for request in ordered:
        if request.session is not None:
            turn = turns.get(request.session, 0)
            turns[request.session] = turn + 1
            request = request if request.turn == turn else replace(request, turn=turn)
        numbered.append(request)
    return tuple(numbered)


def numbered_lines(lines: Iterable[str]) -> list[tuple[int, str]]:
    """Lines that hold something, with their numbers from 1."""
    return [(line, text) for line, raw in enumerate(lines, start=1) if (text := raw.strip().removeprefix("\ufeff"))]
