"""What the runner needs to know of a proxy, and private virtual environments for those that come from PyPI."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

#: the key that every request carries; proxies without authentication pass it on
KEY = "sk-kilocard-benchmark"


class Unavailable(Exception):
    """The proxy is not installed here; the message says how to get it."""


class Proxy:
    """Subclasses set `name` and give an argv; one object is one run with fixed ports and a private folder."""

    name = ""
    #: part of the default selection
    default = True
    #: seconds to become ready
    start_timeout = 30.0
    #: path that answers 200 once requests can be served
    ready_path = "/v1/models"

    def __init__(self, folder: Path, port: int, upstreams: Sequence[int], cache: Path) -> None:
        self.folder, self.port, self.upstreams, self.cache = folder, port, list(upstreams), cache

    def prepare(self) -> None:
        """Install what is missing (into the cache folder only). Raises Unavailable."""

    def argv(self) -> list[str]:
        """Write the configuration into `folder` and return the command."""
        raise NotImplementedError

    def env(self) -> Mapping[str, str]:
        return {}

    def ready_url(self) -> str:
        return f"http://127.0.0.1:{self.port}{self.ready_path}"

    def version(self) -> str:
        return ""

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        return path


def venv(cache: Path, name: str, *requirements: str) -> Path:
    """The bin folder of a virtual environment with `requirements`, made on first use."""
    bin_folder = cache / name / "bin"
    stamp = cache / name / "requirements.txt"
    wanted = "\n".join(requirements)
    if stamp.exists() and stamp.read_text() == wanted:
        return bin_folder
    print(f"installing {', '.join(requirements)} into {cache / name}", file=sys.stderr)
    try:
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(cache / name)], check=True, capture_output=True)
        subprocess.run(
            [str(bin_folder / "python"), "-m", "pip", "install", "-q", *requirements],
            check=True,
            capture_output=True,
            text=True,
            timeout=900,
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as e:
        raise Unavailable(f"pip install {' '.join(requirements)} failed: {str(e.stderr)[-300:]}") from e
    stamp.write_text(wanted)
    return bin_folder


def output(*argv: str) -> str:
    """First line that a version command prints, or an empty string."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=20, env=os.environ, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return next(iter((done.stdout or done.stderr).strip().splitlines()), "")
