"""docs/faults-of-others.md and the decisions name tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from markdown_pages import ROOT

FAULTS = ROOT / "docs" / "faults-of-others.md"
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("0*.md"))
SHORT = {"gw/": "tests/integration/gateway/", "it/": "tests/integration/", "un/": "tests/unit/"}
NAMED = re.compile(r"`([\w./-]+\.py)::(\w+)`")


def whole(path: str) -> str:
    return SHORT.get(path[:3], path[:3]) + path[3:]


@pytest.mark.parametrize("page", [FAULTS, *DECISIONS], ids=lambda page: page.name)
def test_named_tests_exist(page: Path) -> None:
    for path, test in NAMED.findall(page.read_text()):
        file = ROOT / whole(path)
        assert file.exists(), f"{page.name} names {path}"
        assert re.search(rf"^(?:async )?def {test}\(", file.read_text(), re.MULTILINE), f"{path} has no {test}"


def test_each_fault_has_a_number_and_a_test() -> None:
    done, _, later = FAULTS.read_text().partition("## Not yet")
    numbers = []
    for row in re.findall(r"^\| \d.*$", done, re.MULTILINE):
        numbers.append(int(row.split("|")[1]))
        assert NAMED.search(row), f"no test in {row[:60]}"
    assert numbers == sorted(set(numbers))
    missing = set(range(1, 44)) - set(numbers)
    assert missing == {18, 19, 22, 30, 38}, "say under 'Not yet' why a number is missing"
    assert all(re.search(rf"\b{number}\b", later) for number in missing)


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.name)
def test_decisions_are_dated(page: Path) -> None:
    lines = page.read_text().splitlines()
    assert lines[0].startswith(f"# {page.name[:4]}: ")
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", lines[2])
