"""`kilocard usage`: who used how much."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from kilocard.cli.output import notes, print_json
from kilocard.cli.records import postgres
from kilocard.cli.usage_table import as_csv, as_dict, show
from kilocard.cli.wiring import cache_dir, read_cluster, store_path
from kilocard.core.errors import UsageError
from kilocard.stores import usage_sqlite
from kilocard.tenancy.usage import keeps_ledger
from kilocard.tenancy.usage_report import DIMENSIONS, Line, Question, total

_AGO = re.compile(r"(\d+)([dhm])")
_SECONDS = {"d": 86_400, "h": 3_600, "m": 60}


def usage(
    cluster: Annotated[Path | None, typer.Option(help="The cluster file whose ledger is read.")] = None,
    store: Annotated[Path | None, typer.Option(help="An embedded store, instead of a cluster file.")] = None,
    database: Annotated[str | None, typer.Option(help="A PostgreSQL URL, instead of a cluster file.")] = None,
    by: Annotated[str, typer.Option(help="Break down by these of day, tenant, model, pool.")] = "tenant,model",
    since: Annotated[str | None, typer.Option(help="2026-11-01, 2026-11-01T12:00, or 7d, 24h, 30m ago.")] = None,
    until: Annotated[str | None, typer.Option(help="The same; not with this moment.")] = None,
    tenant: Annotated[str | None, typer.Option(help="Only this tenant.")] = None,
    model: Annotated[str | None, typer.Option(help="Only this model.")] = None,
    csv: Annotated[bool, typer.Option("--csv", help="Comma-separated values.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Show what tenants used: requests, errors, tokens, time to the first token.

    Reads the ledger that `kilocard gateway` and `kilocard up` keep; they may be running. All times are UTC.
    """
    if csv and json:
        raise UsageError("--csv or --json, not both")
    now = datetime.now(UTC).timestamp()
    question = Question(_dimensions(by), _moment(since, now, "since"), _moment(until, now, "until"), tenant, model)
    if question.since is not None and question.until is not None and question.since >= question.until:
        raise UsageError("--since has to be before --until")
    lines = _read(cluster, store, database, question)
    if csv:
        print(as_csv(question.by, lines), end="")
    elif json:
        print_json(_document(question, lines))
    else:
        show(question.by, lines)


def _read(cluster: Path | None, store: Path | None, database: str | None, question: Question) -> list[Line]:
    if sum(place is not None for place in (cluster, store, database)) > 1:
        raise UsageError("--cluster, --store or --database: one of them")
    path = store or cache_dir() / "kilocard.db"
    if cluster is not None:
        spec = read_cluster(cluster)
        if not keeps_ledger(spec):
            said = "no ledger is kept: there are no tenants, or gateway.usage.enabled is false"
            notes.print(f"{cluster}: {said}", soft_wrap=True)
        database = spec.gateway.usage.database
        path = store_path(spec)
    if database is not None:
        lines: list[Line] = postgres().read(database, question)
        return lines
    return usage_sqlite.read(path, question)


def _document(question: Question, lines: list[Line]) -> dict[str, Any]:
    return {
        "by": list(question.by),
        "since": _iso(question.since),
        "until": _iso(question.until),
        "tenant": question.tenant,
        "model": question.model,
        "lines": [as_dict(question.by, line) for line in lines],
        "total": as_dict((), total(lines)),
    }


def _dimensions(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in names:
        if name not in DIMENSIONS:
            raise UsageError(f"--by {name}: use some of {', '.join(DIMENSIONS)}, with commas between them")
    if len(set(names)) < len(names):
        raise UsageError(f"--by {text}: each of them once")
    return names


def _moment(text: str | None, now: float, option: str) -> float | None:
    """Unix seconds. A day is its beginning."""
    if text is None:
        return None
    ago = _AGO.fullmatch(text)
    try:
        if ago is not None:
            moment = datetime.fromtimestamp(now - int(ago[1]) * _SECONDS[ago[2]], UTC)
        else:
            moment = datetime.fromisoformat(text)
            moment = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError, OSError):  # also what lies before the year 1 or after 9999
        raise UsageError(f"--{option} {text}: write a day like 2026-11-01, or 7d, 24h or 30m for so long ago") from None
    return moment.timestamp()


def _iso(moment: float | None) -> str | None:
    return None if moment is None else datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds")
