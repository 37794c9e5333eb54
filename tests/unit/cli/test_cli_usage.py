"""`kilocard usage` as people and programs see it."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from kilocard.cli.main import app
from kilocard.cli.usage_table import FIGURES, as_csv
from kilocard.core.errors import UsageError
from kilocard.stores.usage_sqlite import SqliteLedger
from kilocard.tenancy.usage import Record, Tokens
from kilocard.tenancy.usage_report import Line

ONE = Line(("m",), 3, 1, 0, 300, 60, 40, 0.5, 2)


def record(number: int, tenant: str, ended: float) -> Record:
    return Record(
        ended - 1, ended, b"kc-%d" % number, b"", None, tenant, "m", "m", "/v1/completions", True, 10, "p", "p/0", 1,
        "ok", 200, "", Tokens(100, 20, 60, False), 0.0, ended - 0.5,
    )  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Two tenants, on 28 and 29 November 2026."""
    ledger = SqliteLedger(tmp_path / "k.db")
    noon = 1_795_867_200.0
    ledger.write(ledger.prepare([record(1, "a", noon), record(2, "b", noon), record(3, "a", noon + 86_400)], 0.0))
    ledger.close()
    return tmp_path / "k.db"


def usage(*words: object) -> str:
    done = CliRunner().invoke(app, ["usage", *map(str, words)])
    if done.exception is not None:
        raise done.exception
    return done.stdout


@pytest.mark.parametrize(("usage_keys", "said"), [({}, True), ({"enabled": True}, False)])
def test_a_cluster_that_keeps_no_ledger_is_said_to_keep_none(
    tmp_path: Path, store: Path, usage_keys: dict[str, bool], said: bool
) -> None:
    cluster = tmp_path / "c.yaml"
    gateway = {"store": str(store), "usage": usage_keys}
    cluster.write_text(json.dumps({"gateway": gateway, "pools": {"p": {"engine": "emulated"}}}))
    done = CliRunner().invoke(app, ["usage", "--cluster", str(cluster), "--csv"])
    assert ("no ledger is kept" in done.stderr) == said
    assert done.stdout.count("\n") == 3, "what was kept before is shown all the same"


def test_json(store: Path) -> None:
    report = json.loads(usage("--store", store, "--by", "tenant", "--json"))
    assert [(line["tenant"], line["requests"], line["total_tokens"]) for line in report["lines"]] == [
        ("a", 2, 240),
        ("b", 1, 120),
    ]
    assert report["total"]["requests"] == 3 and report["total"]["mean_ttft_s"] == 0.5


@pytest.mark.parametrize(
    ("since", "until", "requests"),
    [
        ("2026-11-29", None, 1),
        (None, "2026-11-29", 2),
        ("2026-11-28T12:00", "2026-11-29T12:00", 2),
        ("2026-11-28T12:00:01", "2026-11-29T12:00:01", 1),
        ("2026-11-28T13:00+01:00", None, 3),
        ("20000d", None, 3),
        ("2099-01-01", None, 0),
    ],
)
def test_time_spans(store: Path, since: str | None, until: str | None, requests: int) -> None:
    options = [*(["--since", since] if since else []), *(["--until", until] if until else [])]
    assert json.loads(usage("--store", store, "--json", "--by", "", *options))["total"]["requests"] == requests


def test_the_table_has_a_total(store: Path) -> None:
    lines = usage("--store", store, "--by", "day,tenant").splitlines()
    assert lines[1].split()[:3] == ["2026-11-28", "a", "1"]
    assert lines[-1].split()[:2] == ["all", "3"]


def test_csv_is_exact(store: Path) -> None:
    (first, *_) = csv.DictReader(io.StringIO(usage("--store", store, "--by", "tenant", "--csv")))
    assert first["tenant"] == "a" and first["prompt_tokens"] == "200" and first["mean_ttft_s"] == "0.5"


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", '=HYPERLINK("x")'])
def test_no_name_is_a_formula(name: str) -> None:
    (row,) = csv.DictReader(io.StringIO(as_csv(("model",), [ONE._replace(group=(name,))]), newline=""))
    assert row["model"] == f"'{name}"


@given(name=st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
def test_any_name_survives_csv(name: str) -> None:
    text = as_csv(("model",), [ONE._replace(group=(name,))])
    (row,) = csv.DictReader(io.StringIO(text, newline=""))
    assert row["model"].removeprefix("'") == name.removeprefix("'") and len(row) == 1 + len(FIGURES)


def test_a_figure_that_is_not_known_is_an_empty_field_and_no_text() -> None:
    """COPY … CSV and typed readers take "" for a text, where a number has to be."""
    text = as_csv((), [ONE._replace(group=(), ttft_sum=0.0, ttft_count=0)])
    assert text.splitlines()[1].endswith(",") and '"' not in text.splitlines()[1]


@pytest.mark.parametrize(
    "words",
    [
        ["--by", "colour"],
        ["--by", "day,day"],
        ["--since", "yesterday"],
        ["--since", "2026-11-30", "--until", "2026-11-29"],
        ["--csv", "--json"],
        ["--database", "postgresql://x/y"],
    ],
)
def test_what_makes_no_sense_is_told(store: Path, words: list[str]) -> None:
    with pytest.raises(UsageError, match="--"):
        usage("--store", store, *words)


@pytest.mark.parametrize(
    "moment",
    ["9999999d", "9" * 5000 + "d", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "2026-13-01", "7w"],
)
def test_a_moment_beyond_the_calendar_is_refused(store: Path, moment: str) -> None:
    for option in ("--since", "--until"):
        with pytest.raises(UsageError, match=option):
            usage("--store", store, option, moment, "--json")


def test_the_ends_of_the_calendar_are_moments(store: Path) -> None:
    report = json.loads(usage("--store", store, "--since", "0001-01-01", "--until", "9999-12-31T23:59", "--json"))
    assert report["total"]["requests"] == 3 and report["since"].startswith("0001-01-01")
