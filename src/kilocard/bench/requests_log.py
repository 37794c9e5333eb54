"""requests.jsonl: every request of a run, one a line. What calibration and comparison read.

The first line says what the file is. Then, in order of points: `point` is the place in results.json's `points`,
`carried` marks a request that ran within the window and is measured in no latency. Requests that were sent alone,
before the points, have the point -1. Times are seconds since the run's start; what was not seen is left out.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from kilocard.bench.point import Point
from kilocard.bench.record import RequestRecord
from kilocard.core.errors import UsageError

SCHEMA = "kilocard.requests/1"
_FIELDS = [each.name for each in fields(RequestRecord)]


class Line(NamedTuple):
    """One request of the file."""

    point: int
    carried: bool
    record: RequestRecord


class _Head(msgspec.Struct):
    schema: str


class Row(msgspec.Struct, omit_defaults=True):
    """One request. Fields that have their default (null, 0, no gaps) are left out."""

    point: Annotated[int, Meta(description="place in `points` of results.json; -1: sent alone, before them")]
    intended_s: Annotated[float, Meta(description="when it should have been sent, since the run's start")]
    sent_s: Annotated[float, Meta(description="when its last byte was handed to the kernel")]
    asked_input: Annotated[int, Meta(description="tokens")]
    asked_output: Annotated[int, Meta(description="tokens")]
    carried: Annotated[bool, Meta(description="ran within the window, but counts only for its throughput")] = False
    first_s: Annotated[float | None, Meta(description="first arrival with content, reasoning or a tool call")] = None
    last_s: Annotated[float | None, Meta(description="last such arrival")] = None
    done_s: Annotated[float | None, Meta(description="end of the response")] = None
    input_tokens: Annotated[int | None, Meta(description="by the server's usage")] = None
    output_tokens: Annotated[int | None, Meta(description="by the server's usage")] = None
    cached_tokens: Annotated[int | None, Meta(description="of the prompt, found in the prefix cache")] = None
    gaps_s: Annotated[list[float], Meta(description="between arrivals: one fewer than arrivals")] = msgspec.field(
        default_factory=list
    )
    last_share: Annotated[float, Meta(description="of the text, in the last arrival")] = 0.0
    first_kind: Annotated[str | None, Meta(description="content, reasoning or tool_calls")] = None
    finish_reason: str | None = None
    status: Annotated[int, Meta(description="of HTTP; 0: none came")] = 0
    error: Annotated[str | None, Meta(description="what went wrong, or that it was cut off at the end")] = None
    session: str | None = None
    turn: int = 0


#: the `point` of requests that were sent one at a time, before the points
ALONE = -1


def write(points: Sequence[Point], alone: Iterable[RequestRecord] = ()) -> Iterator[bytes]:
    """Lines with their line ends. `alone`: what was asked one at a time, before the points."""
    encode = msgspec.json.Encoder().encode
    yield encode(_Head(SCHEMA)) + b"\n"
    for record in alone:
        yield encode(_row(ALONE, False, record)) + b"\n"
    for place, point in enumerate(points):
        for carried, records in ((True, point.carried), (False, point.records)):
            for record in records:
                yield encode(_row(place, carried, record)) + b"\n"


def read(lines: Iterable[bytes], name: str) -> Iterator[Line]:
    """write's inverse. UsageError names the line that is wrong."""
    decoder = msgspec.json.Decoder(Row)
    began = False
    for number, line in enumerate(lines, 1):
        try:
            if not began:
                began = True
                if msgspec.json.decode(line, type=_Head).schema != SCHEMA:
                    raise msgspec.ValidationError("another schema")
                continue
            if line.strip():
                yield _line(decoder.decode(line))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            what = f'does not begin with {{"schema": "{SCHEMA}"}}' if number == 1 else "is not a request"
            raise UsageError(
                f"{name}, line {number}: {what} ({error}): give the requests.jsonl that kilocard bench wrote"
            ) from None
    if not began:
        raise UsageError(f"{name} is empty: give the requests.jsonl that kilocard bench wrote")


def _row(point: int, carried: bool, record: RequestRecord) -> Row:
    values: dict[str, Any] = {name: getattr(record, name) for name in _FIELDS}
    # a tenth of a microsecond is finer than any clock that was read
    values["gaps_s"] = [round(gap, 7) for gap in record.gaps_s]
    return Row(point=point, carried=carried, **values)


def _line(row: Row) -> Line:
    values: dict[str, Any] = {name: getattr(row, name) for name in _FIELDS}
    values["gaps_s"] = array("d", row.gaps_s)
    return Line(row.point, row.carried, RequestRecord(**values))
