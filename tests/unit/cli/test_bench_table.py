from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console
from tests.run_results import results
from tests.simulated_points import simulated_point

from kilocard.bench import requests_log
from kilocard.bench.document import About, Finding, Results, Slo, TargetSeen
from kilocard.bench.results import dump
from kilocard.cli.bench_compare import compare_runs
from kilocard.cli.bench_table import show
from kilocard.core.errors import UsageError


def printed(document: Results, width: int = 200) -> str:
    console = Console(width=width, highlight=False, markup=False)
    with console.capture() as capture:
        show(document, console)
    return capture.get()


def made(seed: int = 0, slower: float = 1.0) -> tuple[Results, bytes]:
    points = [
        simulated_point(concurrency=c, repeat=r, seed=seed, slower=slower, warmup_s=0.5, window_s=2.0)
        for c in (1, 8, 64, 128)
        for r in (0, 1)
    ]
    target = TargetSeen(url="http://x", model="some-model", engine="e", engine_version="1.0")
    document = results(
        points, target=target, about=About(), slo=Slo(ttft_s=1), findings=[Finding(severity="error", text="[b]bad[/b]")]
    )
    return document, b"".join(requests_log.write(points))


def test_the_answer_is_a_table_and_words() -> None:
    text = printed(made()[0])
    assert "some-model · e 1.0 · http://x" in text
    assert text.count("◀ knee") == 2
    assert "Knee   At 64 in flight" in text
    assert "Limit  admission" in text
    assert "→ Raise max-num-seqs from 64 to 128" in text
    assert "error: [b]bad[/b]" in text, "words from elsewhere are no markup"
    assert "~" in text and "of too few values" in text


def test_what_each_request_asked_for_stands_above_the_table() -> None:
    document = made()[0]
    assert "Each request" not in printed(document), "results of before it was kept"
    document.about.request = {"model": "m", "temperature": 0.0, "ignore_eos": True}
    assert printed(document).splitlines()[1] == "Each request: temperature 0, ignore_eos, no usage"


def test_numbers_of_the_load_tester_are_not_shown() -> None:
    document = made()[0]
    document.points[4].client.limited = "it was late"
    lines = printed(document).splitlines()
    row = next(line for line in lines if "client limit" in line)
    assert row.split()[0] == "64"
    assert f"{document.points[4].output_tokens_per_s:,.0f}" not in row
    assert [line.split()[0] for line in lines[2:10]] == ["1", "1", "8", "8", "64", "64", "128", "128"], (
        "in order of load"
    )


@pytest.mark.parametrize("limited", [None, "it was late"])
@pytest.mark.parametrize("width", [80, 100, 140, 200])
def test_a_narrow_terminal_shows_fewer_columns_and_each_of_them_whole(width: int, limited: str | None) -> None:
    document = made()[0]
    document.points[4].client.limited = limited
    lines = printed(document, width).splitlines()
    table = [line for line in lines if line.startswith("in flight") or line[:1].isdigit()]
    assert len(table) == 9
    assert "…" not in "".join(table)
    assert "TTFT p50" in table[0] and "tok/s" in table[0] and "◀ knee" in "".join(table)
    assert ("more columns" in "".join(lines)) == (table[0].count("p95") < 3)


def run_folder(tmp_path: Path, name: str, seed: int, slower: float = 1.0) -> Path:
    document, log = made(seed, slower)
    folder = tmp_path / name
    folder.mkdir()
    (folder / "results.json").write_bytes(dump(document))
    (folder / "requests.jsonl").write_bytes(log)
    return folder


def test_two_folders_are_compared(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    a, b = run_folder(tmp_path, "a", 1), run_folder(tmp_path, "b", 2, 1.2)
    page = tmp_path / "compare.html"
    comparison = compare_runs(a, b / "results.json", as_json=True, html=page)
    assert comparison.regressions
    document = json.loads(capsysbinary.readouterr().out)
    assert document["verdict"] == "slower"
    assert {"metric", "a", "b", "change", "low", "high", "verdict", "why"} <= set(document["rows"][0])
    assert page.read_text().startswith("<!doctype html>")
    compare_runs(a, b)
    assert "slower" in capsysbinary.readouterr().out.decode()


def test_a_folder_without_results_is_an_error_that_says_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="kilocard bench --out wrote"):
        compare_runs(tmp_path, tmp_path)
