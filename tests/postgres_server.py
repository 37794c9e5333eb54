"""A real PostgreSQL of one's own: in a folder, on a free port of the loopback, gone afterwards."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from parts import part_missing


def _programs() -> Path:
    """The folder of initdb and postgres; skips the test where there is none."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: int(folder.parent.name))
    if not folders and (found := shutil.which("initdb")):
        folders = [Path(found).resolve().parent]
    if not folders:
        part_missing("PostgreSQL is not installed: apt-get install postgresql")
    return folders[-1]


class PostgresServer:
    """`start` it, `crash` it, `start` it again: the data stay."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._programs = _programs()
        # PostgreSQL refuses to be run by root.
        self._as: dict[str, object] = {}
        if os.geteuid() == 0:
            self._as = {"user": "postgres", "group": "postgres", "extra_groups": []}
            shutil.chown(folder, "postgres", "postgres")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"postgresql://kilocard@127.0.0.1:{self.port}/postgres"
        self._process: subprocess.Popen[bytes] | None = None
        self._run("initdb", "-D", str(folder / "data"), "-A", "trust", "-U", "kilocard", "--no-sync", "-E", "UTF8")

    def _run(self, program: str, *words: str) -> None:
        argv = [str(self._programs / program), *words]
        done = subprocess.run(argv, cwd=self._folder, capture_output=True, text=True, check=False, **self._as)  # type: ignore[call-overload]
        assert done.returncode == 0, done.stderr

    def start(self) -> None:
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(  # type: ignore[call-overload]
                [
                    str(self._programs / "postgres"), "-D", str(self._folder / "data"), "-k", str(self._folder),
                    "-h", "127.0.0.1", "-p", str(self.port), "-c", "fsync=off", "-c", "max_connections=20",
                ],
                cwd=self._folder, stdout=log, stderr=log, **self._as,
            )  # fmt: skip

    def wait(self) -> None:
        """Until it takes connections."""
        assert self._process is not None
        argv = [str(self._programs / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port), "-t", "1"]
        for _ in range(200):
            if subprocess.run(argv, check=False).returncode == 0:
                return
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = self._process.wait(0.05)
                raise AssertionError(f"postgres ended with {status}: {(self._folder / 'log').read_text()}")
        raise AssertionError("postgres does not answer")

    def crash(self) -> None:
        """At once, in the middle of whatever it does; it recovers from its log at the next start."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(10)
            self._process = None


@contextlib.contextmanager
def postgres() -> Iterator[PostgresServer]:
    with tempfile.TemporaryDirectory(prefix="kilocard-pg-") as folder:  # short: it holds a Unix socket
        server = PostgresServer(Path(folder))
        server.start()
        try:
            server.wait()
            yield server
        finally:
            server.crash()
