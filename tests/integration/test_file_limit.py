"""A gateway started from a shell with 1,024 descriptors must not stop at 500 streams."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
from kilocard.cli.running import raise_file_limit
got = raise_file_limit()
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
assert soft == got and soft > 256, (soft, hard)
"""


def test_the_soft_limit_is_raised() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
