"""What a run of `kilocard bench` leaves behind: a folder with three files."""

from __future__ import annotations

import tempfile
from pathlib import Path

from kilocard.bench import requests_log
from kilocard.bench.document import Results
from kilocard.bench.report.page import report_html
from kilocard.bench.results import dump
from kilocard.bench.run import Measured
from kilocard.core.errors import UsageError


def check_folder(folder: Path) -> None:
    """Before an hour is measured for nothing. Raises UsageError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UsageError(f"--out {folder}: {error.strerror or error}") from None


def write_files(folder: Path, results: Results, measured: Measured) -> None:
    """results.json, requests.jsonl and report.html. Raises UsageError where the folder takes none."""
    try:
        (folder / "results.json").write_bytes(dump(results))
        with (folder / "requests.jsonl").open("wb") as file:
            file.writelines(requests_log.write(measured.points, [*measured.prefills, *measured.decodes]))
        (folder / "report.html").write_text(report_html(results), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--out {folder}: {error.strerror or error}") from None
