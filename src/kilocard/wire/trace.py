"""The `traceparent` header of W3C Trace Context: who made this request, and is it traced?

00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01
version, trace id, the caller's span id, flags
"""

from __future__ import annotations

import re
from typing import NamedTuple

#: flags: the caller records its span / the trace id is random (level 2)
SAMPLED, RANDOM = 1, 2

#: §3.2: version ff is invalid, version 00 has four parts, later ones may have more; ids of zeros are invalid
_FORM = re.compile(
    rb"(?!ff|00-.{52}-)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?", re.DOTALL
)


class TraceParent(NamedTuple):
    """Ids as numbers, never 0. `flags`: as they came, unknown ones included."""

    trace_id: int
    span_id: int
    flags: int

    @property
    def sampled(self) -> bool:
        return bool(self.flags & SAMPLED)

    def header(self) -> bytes:
        """The value to send: version 00, which knows two flags."""
        return b"00-%032x-%016x-%02x" % (self.trace_id, self.span_id, self.flags & (SAMPLED | RANDOM))


def parse(value: bytes) -> TraceParent | None:
    """None for what is malformed: the receiver then begins a trace of its own (W3C Trace Context §3.2)."""
    match = _FORM.fullmatch(value)
    if match is None:
        return None
    trace_id, span_id, flags = match.groups()
    return TraceParent(int(trace_id, 16), int(span_id, 16), int(flags, 16))


def unsampled(value: bytes) -> bool:
    """A parent that is not traced: `parse` without the numbers, since most requests of a sampling client are that."""
    match = _FORM.fullmatch(value)
    return match is not None and not int(match[3], 16) & SAMPLED
