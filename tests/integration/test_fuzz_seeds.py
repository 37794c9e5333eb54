"""What each fuzz target begins with: its stand-ins have all that the code under it asks for, before anybody fuzzes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
TARGETS = sorted(file.stem for file in (ROOT / "fuzz" / "targets").glob("[a-z]*.py"))


@pytest.mark.parametrize("target", TARGETS)
def test_its_seeds_are_fine(target: str) -> None:
    # a process of its own: some targets put stand-ins into the modules that they try
    command = [sys.executable, "-m", "fuzz", target, "--seeds"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
