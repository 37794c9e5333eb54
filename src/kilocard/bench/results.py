"""Points in, results.json out, and back."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import msgspec

from kilocard.bench.advice import advise
from kilocard.bench.caveats import caveats
from kilocard.bench.document import SCHEMA, About, Finding, PointResult, Results, Slo, TargetSeen
from kilocard.bench.knee import find_knee
from kilocard.bench.limit import find_limit
from kilocard.core.errors import UsageError

_SECRET = re.compile(r"key|token|secret|password|authorization|header", re.IGNORECASE)
#: names that look like secrets and are counts of tokens
_HARMLESS = re.compile(r"^(input|output|max|kv)[_-]?tokens$", re.IGNORECASE)


def assemble(
    points: Sequence[PointResult],
    *,
    target: TargetSeen,
    about: About,
    slo: Slo | None = None,
    single: dict[str, float] | None = None,
    stopped_early: str | None = None,
    findings: Sequence[Finding] = (),
) -> Results:
    """The whole document, of points that are summarised already, as a live display has them. `findings` are what the
    prober found; those that the numbers show are added behind."""
    knee = find_knee(points)
    limit = find_limit(points, knee, target.max_num_seqs)
    return Results(
        target=msgspec.structs.replace(target, url=without_secrets(target.url)),
        about=msgspec.structs.replace(
            about, arguments=_without_secrets(about.arguments), request=_without_secrets(about.request)
        ),
        slo=slo,
        single=single,
        points=list(points),
        knee=knee,
        limit=limit.resource,
        limit_evidence=list(limit.evidence),
        best_max_num_seqs=limit.best_max_num_seqs,
        advice=advise(points, knee, limit, slo),
        stopped_early=stopped_early,
        findings=[*findings, *caveats(points)],
    )


def dump(document: Results) -> bytes:
    """results.json, indented."""
    return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"


def load(data: bytes, name: str) -> Results:
    """dump's inverse. UsageError says what `name` is instead, where it is no such file."""
    try:
        raw = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{name} is no JSON ({error}): give the results.json that kilocard bench wrote") from None
    schema = raw.get("schema") if isinstance(raw, dict) else None
    if not isinstance(schema, str) or not schema.startswith("kilocard.bench/"):
        guess = _whose(raw)
        raise UsageError(
            f"{name} is JSON, but no result of kilocard bench{guess}: its `schema` is {schema!r}, not {SCHEMA!r}"
        )
    if schema != SCHEMA:
        raise UsageError(
            f"{name} has schema {schema}, this kilocard reads {SCHEMA}: compare with the kilocard that wrote it, or "
            "measure again"
        )
    try:
        return msgspec.convert(raw, Results)
    except msgspec.ValidationError as error:
        raise UsageError(f"{name} is damaged or was edited: {error}") from None


def json_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of results.json."""
    return msgspec.json.schema(Results)


def without_secrets(url: str) -> str:
    """The URL without user name, password, query and fragment."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _without_secrets(values: dict[str, Any]) -> dict[str, Any]:
    """No value whose name says that it is a secret; URLs without theirs."""
    shown: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            shown[name] = _without_secrets(value)
        elif isinstance(value, bool | int | float) or value is None:
            shown[name] = value
        elif _SECRET.search(name) and not _HARMLESS.match(name):
            shown[name] = "***"
        elif isinstance(value, str) and "://" in value:
            shown[name] = without_secrets(value)
        else:
            shown[name] = value
    return shown


def _whose(raw: Any) -> str:
    """What other tools' files look like, to name them."""
    if not isinstance(raw, dict):
        return ""
    if "request_throughput" in raw and "mean_ttft_ms" in raw:
        return " (it looks like one of `vllm bench serve`)"
    if "benchmarks" in raw:
        return " (it looks like one of GuideLLM)"
    return " (it looks like a plan)" if "choice" in raw else ""


def named(point: PointResult) -> str:
    """ "32 in flight", "12 requests/s", "the trace"; with the repeat where it is not the first."""
    if point.concurrency is not None:
        name = f"{point.concurrency} in flight"
    else:
        name = "the trace" if point.rate_per_s is None else f"{point.rate_per_s:g} requests/s"
    return f"{name} (repeat {point.repeat + 1})" if point.repeat else name
