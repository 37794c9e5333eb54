"""docs/faults-of-others.md, docs/cases.md and the decisions name tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from markdown_pages import ROOT

FAULTS = ROOT / "docs" / "faults-of-others.md"
CASES = ROOT / "docs" / "cases.md"
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("0*.md"))
SHORT = {"gw/": "tests/integration/gateway/", "it/": "tests/integration/", "re/": "tests/real/", "un/": "tests/unit/"}
NAMED = re.compile(r"`([\w./-]+\.py)::(\w+)`")


def whole(path: str) -> str:
    return SHORT.get(path[:3], path[:3]) + path[3:]


@pytest.mark.parametrize("page", [FAULTS, CASES, *DECISIONS], ids=lambda page: page.name)
def test_named_tests_exist(page: Path) -> None:
    for path, test in NAMED.findall(page.read_text()):
        file = ROOT / whole(path)
        assert file.exists(), f"{page.name} names {path}"
        assert re.search(rf"^(?:async )?def {test}\(", file.read_text(), re.MULTILINE), f"{path} has no {test}"


def test_each_fault_has_a_number_and_a_test() -> None:
    done, _, later = FAULTS.read_text().partition("## Not yet")
    numbers = []
    for row in re.findall(r"^\| \d+ \|.*$", done, re.MULTILINE):
        numbers.append(int(row.split("|")[1]))
        assert NAMED.search(row), f"no test in {row[:60]}"
    assert numbers == sorted(set(numbers))
    missing = set(range(1, 44)) - set(numbers)
    assert missing == {22}, "say under 'Not yet' why a number is missing"
    assert all(re.search(rf"\b{number}\b", later) for number in missing)


def test_each_case_has_one_row_with_a_test_or_says_what_it_waits_for() -> None:
    done, _, later = CASES.read_text().partition("## Comes with later work")
    rows = re.findall(r"^\| ([a-z]{2}-\d\d) \|.*$", done, re.MULTILINE)
    assert len(rows) == len(set(rows)) > 40
    works = re.findall(r"^\| (\w[\w ]*) \|", later, re.MULTILINE)[1:]
    for row in re.findall(r"^\| [a-z]{2}-\d\d \|.*$", done, re.MULTILINE):
        assert NAMED.search(row) or re.search(r"\| – \(", row), f"no test in {row[:60]}"
        for work in re.findall(r"\((?:in part: )?([a-z, ]+)\) \|$", row):
            assert set(work.split(", ")) <= set(works), f"{row[:8]} waits for {work}, which is not below"


def cases_of(test: str) -> list[str]:
    """test_mt_01_04_nan → mt-01, mt-04."""
    found = []
    kind = ""
    for word in test.split("_")[1:]:
        if word in {"gw", "lb", "mt", "as", "dp", "bn", "sz"}:
            kind = word
        elif kind and re.fullmatch(r"\d\d", word):
            found.append(f"{kind}-{word}")
        else:
            break
    return found


def test_each_test_that_is_named_for_a_case_is_in_its_row() -> None:
    rows = dict(re.findall(r"^\| ([a-z]{2}-\d\d) \|(.*)$", CASES.read_text(), re.MULTILINE))
    named = [
        (test, case)
        for file in (ROOT / "tests").rglob("test_*.py")
        for test in re.findall(r"^def (test_\w+)\(", file.read_text(), re.MULTILINE)
        for case in cases_of(test)
    ]
    assert len(named) > 40
    for test, case in named:
        assert f"::{test}`" in rows[case], f"{test} is not in the row of {case}"


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.name)
def test_decisions_are_dated(page: Path) -> None:
    lines = page.read_text().splitlines()
    assert lines[0].startswith(f"# {page.name[:4]}: ")
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", lines[2])
