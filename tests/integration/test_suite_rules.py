"""The rules of tests/conftest.py, on suites made for it: in CI a skip is a failure."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent.parent

SKIPS = """
import pytest
from parts import part_missing

def test_here():
    pass

def test_skips():
    pytest.skip("no GPU today")

def test_lacks_a_part():
    part_missing("run scripts/build-it")

@pytest.fixture
def part():
    part_missing("run scripts/build-it")

def test_lacks_a_part_in_a_fixture(part):
    pass

@pytest.mark.may_skip("only macOS has it")
def test_may_skip():
    pytest.skip("not macOS")

@pytest.mark.xfail(reason="known")
def test_known_failure():
    assert False
"""
SKIPS_WHOLE = 'import pytest\npytest.importorskip("there_is_no_such_module")\n'


def outcome(tmp_path: Path, source: str, ci: str) -> tuple[int, str]:
    (tmp_path / "test_made_up.py").write_text(source)
    done = subprocess.run(
        # as a plugin, since the made-up suite is elsewhere
        [sys.executable, "-m", "pytest", "-p", "conftest", "-p", "no:cacheprovider", "-rs", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(TESTS), "CI": ci},
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.returncode, done.stdout + done.stderr


def test_on_a_developers_machine_a_missing_part_is_a_skip(tmp_path: Path) -> None:
    code, said = outcome(tmp_path, SKIPS, ci="")
    assert code == 0, said
    assert "1 passed, 4 skipped, 1 xfailed" in said
    assert "run scripts/build-it" in said


def test_in_ci_it_is_a_failure_that_says_why(tmp_path: Path) -> None:
    code, said = outcome(tmp_path, SKIPS, ci="true")
    assert code == 1, said
    assert "2 failed, 1 passed, 1 skipped, 1 xfailed, 1 error" in said
    assert "run scripts/build-it" in said and "no GPU today" in said


@pytest.mark.parametrize(("ci", "code"), [("", 5), ("true", 2)])
def test_a_file_that_skips_itself_whole(tmp_path: Path, ci: str, code: int) -> None:
    found, said = outcome(tmp_path, SKIPS_WHOLE, ci)
    assert found == code, said
