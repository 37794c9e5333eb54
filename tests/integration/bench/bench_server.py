"""Emulated engines, and gateways before them, as processes of their own, for the load tester to measure."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@contextmanager
def emulated(*options: str, count: int = 1) -> Iterator[list[str]]:
    """URLs of engines with these options of `kilocard emulate`."""
    argv = [sys.executable, "-m", "kilocard.emulator", "--port", "0", "--count", str(count), *options]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            process.stderr.readline()  # says that this is no real model
            yield [process.stderr.readline().strip().removesuffix("/v1") for _ in range(count)]
        finally:
            process.terminate()
            process.communicate()


@contextmanager
def gateway(folder: Path, engines: Sequence[str], key: str | None = None) -> Iterator[str]:
    """The URL of a `kilocard gateway` before these engines; with a key it lets in nobody else."""
    spec = {
        "gateway": {
            "listen": "127.0.0.1:0",
            "admin": "127.0.0.1:0",
            "store": str(folder / "kilocard.db"),
            "drain": "1s",
        },
        "models": {"emulated": {"pools": {"p": 1}}},
        "pools": {"p": {"engine": "vllm", "endpoints": list(engines)}},
    }
    if key is not None:
        spec["tenants"] = {"team-a": {"keys": [f"sha256:{hashlib.sha256(key.encode()).hexdigest()}"]}}
    (folder / "cluster.yaml").write_text(json.dumps(spec))
    argv = [sys.executable, "-m", "kilocard", "gateway", str(folder / "cluster.yaml")]
    env = {**os.environ, "KILOCARD_HOME": str(folder), "COLUMNS": "200"}
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True, env=env) as process:
        assert process.stderr is not None
        try:
            found = next(found for line in process.stderr if (found := re.match(r"gateway\s+(http\S+)/v1", line)))
            _until_ready(found[1])
            yield found[1]
        finally:
            process.terminate()
            process.communicate()


def fault(url: str, what: dict[str, object]) -> None:
    """Break an emulated engine on purpose."""
    _DIRECT.open(f"{url}/admin/fault", json.dumps(what).encode(), timeout=60).close()


def _until_ready(url: str) -> None:
    end = time.monotonic() + 60
    while True:
        try:
            _DIRECT.open(f"{url}/readyz", timeout=20).close()
            return
        except OSError:  # not ready, or not listening yet
            assert time.monotonic() < end, f"{url} is not ready"
            time.sleep(0.05)
