"""More engines than a shell's usual limit of file descriptors."""

from __future__ import annotations

import re
import resource
import subprocess
import sys
import urllib.request

ENGINES = 150


def test_more_engines_than_the_soft_limit_of_file_descriptors_allows() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    argv = [sys.executable, "-m", "kilocard.cli.main", "emulate", "--count", str(ENGINES), "--port", "0"]
    with subprocess.Popen(
        argv,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard)),
    ) as process:
        try:
            assert process.stderr is not None
            urls = []
            for line in process.stderr:
                if (found := re.match(r"(http://\S+)/v1", line)) is not None:
                    urls.append(found[1])
                if len(urls) == ENGINES:
                    break
            assert len(set(urls)) == ENGINES
            with urllib.request.urlopen(f"{urls[-1]}/health", timeout=10) as answer:
                assert answer.status == 200
        finally:
            process.kill()
