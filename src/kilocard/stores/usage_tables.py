"""The ledger's two tables, the same in SQLite and PostgreSQL: one row for each request, and totals for each day.

Their names and columns are a contract (docs/usage.md): columns may be added, none changes its meaning.
"""

from __future__ import annotations

from datetime import date
from typing import Any, NamedTuple

from kilocard.core.errors import UsageError
from kilocard.tenancy.usage import Record
from kilocard.tenancy.usage_report import DAY, DIMENSIONS, Line, Question, parts

REQUESTS = "kilocard_usage"
DAILY = "kilocard_usage_daily"


class Column(NamedTuple):
    name: str
    #: NOT NULL, unless it says otherwise
    sqlite: str
    postgres: str


#: in the order of `row`
COLUMNS = (
    Column("request_id", "TEXT", "text"),
    Column("started", "REAL", "timestamptz"),
    Column("ended", "REAL", "timestamptz"),
    Column("tenant", "TEXT", "text"),
    Column("model", "TEXT", "text"),
    Column("pool", "TEXT", "text"),
    Column("replica", "TEXT", "text"),
    Column("path", "TEXT", "text"),
    Column("streamed", "INTEGER", "boolean"),
    Column("prompt_tokens", "INTEGER", "bigint"),
    Column("cached_tokens", "INTEGER", "bigint"),
    Column("output_tokens", "INTEGER", "bigint"),
    Column("estimated", "INTEGER", "boolean"),
    Column("held_s", "REAL", "double precision"),
    Column("ttft_s", "REAL NULL", "double precision NULL"),
    Column("duration_s", "REAL", "double precision"),
    Column("attempts", "INTEGER", "integer"),
    Column("outcome", "TEXT", "text"),
    Column("status", "INTEGER NULL", "integer NULL"),
    Column("error_code", "TEXT", "text"),
)
NAMES = ", ".join(column.name for column in COLUMNS)

#: the sums of a group of requests, in the order of Line
_SUMS = (
    ("requests", "count(*)"),
    ("errors", "count(*) FILTER (WHERE outcome NOT IN ('ok', 'client_gone'))"),
    ("estimated", "count(*) FILTER (WHERE estimated)"),
    ("prompt_tokens", "sum(prompt_tokens)"),
    ("cached_tokens", "sum(cached_tokens)"),
    ("output_tokens", "sum(output_tokens)"),
    ("ttft_sum_s", "coalesce(sum(ttft_s), 0)"),
    ("ttft_count", "count(ttft_s)"),
)
_KEY = ", ".join(DIMENSIONS)


class Dialect(NamedTuple):
    """What the two databases spell differently."""

    #: the UTC day on which a request ended
    day: str
    #: a moment, out of a parameter in Unix seconds
    moment: str
    #: types of the daily table: texts, days, whole numbers, seconds
    text: str
    date: str
    whole: str
    seconds: str


SQLITE = Dialect("date(ended, 'unixepoch')", "?", "TEXT", "TEXT", "INTEGER", "REAL")
POSTGRES = Dialect("(ended AT TIME ZONE 'UTC')::date", "to_timestamp(?)", "text", "date", "bigint", "double precision")


def row(record: Record, utc: float) -> tuple[Any, ...]:
    """A record as values of COLUMNS, times in Unix seconds.

    Booleans are 0 and 1: for whatever is no number and no text sqlite3 looks for an adapter, and that takes as long as
    five numbers.
    """
    (
        started, ended, request_id, _, _, tenant, _, model, path, streamed, _, pool, replica, attempts, outcome, status,
        code, tokens, held, first_at,
    ) = record  # fmt: skip
    prompt, output, cached, estimated = tokens
    return (
        request_id.decode("ascii"), started + utc, ended + utc, tenant, model, pool, replica, path,
        1 if streamed else 0,
        prompt, cached, output, 1 if estimated else 0, held, first_at - started if first_at else None, ended - started,
        attempts, outcome, status or None, code,
    )  # fmt: skip


def create_daily(dialect: Dialect) -> str:
    sums = [f"{name} {dialect.seconds if name.endswith('_s') else dialect.whole} NOT NULL" for name, _ in _SUMS]
    keys = [f"{name} {dialect.date if name == 'day' else dialect.text} NOT NULL" for name in DIMENSIONS]
    return f"CREATE TABLE IF NOT EXISTS {DAILY} ({', '.join([*keys, *sums])}, PRIMARY KEY ({_KEY}))"


def add_to_daily(dialect: Dialect, source: str) -> str:
    """Add the requests of `source` (a table, with its condition) to their days.

    Ordered, so that two gateways that add to the same days take their locks in one order.
    """
    sums = ", ".join(expression for _, expression in _SUMS)
    return _add(
        f"SELECT {dialect.day}, tenant, model, pool, {sums} FROM {source} GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4"
    )


def add_sums() -> str:
    """Add one line of `sums` to its day."""
    return _add(f"VALUES ({', '.join('?' * (len(DIMENSIONS) + len(_SUMS)))})")


def _add(lines: str) -> str:
    """Lines of the daily table, added to those that are there."""
    names = ", ".join(name for name, _ in _SUMS)
    updates = ", ".join(f"{name} = d.{name} + excluded.{name}" for name, _ in _SUMS)
    return f"INSERT INTO {DAILY} AS d ({_KEY}, {names}) {lines} ON CONFLICT ({_KEY}) DO UPDATE SET {updates}"


def sums(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """What `rows` add to their days: DIMENSIONS, and _SUMS without a database.

    A database takes three times as long for it, most of that for the calendar's day of each row.
    """
    found: dict[tuple[int, str, str, str], list[Any]] = {}
    for values in rows:
        (
            _, _, ended, tenant, model, pool, _, _, _, prompt, cached, output, estimated, _, ttft, _, _, outcome, _, _,
        ) = values  # fmt: skip
        key = (int(ended // DAY), tenant, model, pool)
        day = found.get(key)
        if day is None:
            day = found[key] = [0, 0, 0, 0, 0, 0, 0.0, 0]
        day[0] += 1
        if outcome != "ok" and outcome != "client_gone":
            day[1] += 1
        day[2] += estimated
        day[3] += prompt
        day[4] += cached
        day[5] += output
        if ttft is not None:
            day[6] += ttft
            day[7] += 1
    return [(iso_day(key[0]), *key[1:], *day) for key, day in found.items()]


def report(dialect: Dialect, question: Question) -> tuple[str, list[Any]]:
    """One SELECT whose rows are Lines, with its parameters for `?`. Raises UsageError for an unknown dimension."""
    for name in question.by:
        if name not in DIMENSIONS:
            raise UsageError(f"usage can't be broken down by {name!r}, only by {', '.join(DIMENSIONS)}")
    span = parts(question.since, question.until)
    only = [
        (name, value) for name, value in (("tenant", question.tenant), ("model", question.model)) if value is not None
    ]
    selects = []
    parameters: list[Any] = []

    def select(what: str, conditions: list[tuple[str, Any]], rest: str = "") -> None:
        everything = [*conditions, *((f"{name} = ?", value) for name, value in only)]
        where = " WHERE " + " AND ".join(condition for condition, _ in everything) if everything else ""
        selects.append(f"SELECT {what}{where}{rest}")
        parameters.extend(value for _, value in everything)

    days = [("day >= ?", span.first), ("day < ?", span.last)]
    select(
        f"{_KEY}, {', '.join(name for name, _ in _SUMS)} FROM {DAILY}",
        [(condition, iso_day(day)) for condition, day in days if day is not None],
    )
    for since, until in span.edges:
        sums = ", ".join(f"{expression} AS {name}" for name, expression in _SUMS)
        moments = [(f"ended >= {dialect.moment}", since), (f"ended < {dialect.moment}", until)]
        select(f"{dialect.day} AS day, tenant, model, pool, {sums} FROM {REQUESTS}", moments, " GROUP BY 1, 2, 3, 4")
    groups = ", ".join(question.by)
    sums = ", ".join(f"coalesce(sum({name}), 0)" for name, _ in _SUMS)
    sql = (
        f"SELECT {f'{groups}, ' if groups else ''}{sums} FROM ({' UNION ALL '.join(selects)}) AS parts"
        f"{f' GROUP BY {groups} ORDER BY {groups}' if groups else ''}"
    )
    return sql, parameters


def line(question: Question, values: tuple[Any, ...]) -> Line:
    """A row of `report`."""
    width = len(question.by)
    group = tuple(str(value) for value in values[:width])
    requests, errors, estimated, prompt, cached, output, seconds, count = values[width:]
    # PostgreSQL sums whole numbers up as decimals.
    return Line(
        group, int(requests), int(errors), int(estimated), int(prompt), int(cached), int(output), float(seconds),
        int(count),
    )  # fmt: skip


def iso_day(day: int) -> str:
    """Days since 1970 as YYYY-MM-DD. The calendar's ends stand for what lies beyond."""
    first = date(1970, 1, 1).toordinal()
    return date.fromordinal(min(max(day + first, 1), date.max.toordinal())).isoformat()
