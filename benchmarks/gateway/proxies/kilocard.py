"""Our gateway with everything on that a team would have on: a key, limits, queue-depth routing, usage, metrics."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from benchmarks.gateway.children import free_port
from benchmarks.gateway.pages import MODEL
from benchmarks.gateway.proxies.base import KEY, Proxy, Unavailable

ROOT = Path(__file__).resolve().parents[3]

_CLUSTER = """
gateway:
  listen: "127.0.0.1:{port}"
  admin: "127.0.0.1:{admin}"
  scrape_interval: 1s
models:
  {model}: {{policy: queue_depth, pools: {{replicas: 100}}}}
pools:
  replicas:
    engine: external
    endpoints: [{endpoints}]
tenants:
  bench:
    keys: ["sha256:{digest}"]
    models: [{model}]
    limits: {{requests_per_minute: 100000000, tokens_per_minute: 100000000000, concurrency: 10000}}
"""


class Kilocard(Proxy):
    name = "kilocard"

    def prepare(self) -> None:
        if find_spec("kilocard.cli.main") is None:
            raise Unavailable("kilocard is not installed in this Python: pip install -e .")

    def argv(self) -> list[str]:
        self.admin = free_port()
        text = _CLUSTER.format(
            port=self.port,
            admin=self.admin,
            model=MODEL,
            endpoints=", ".join(f'"http://127.0.0.1:{p}"' for p in self.upstreams),
            digest=hashlib.sha256(KEY.encode()).hexdigest(),
        )
        return [*self.program(), "gateway", str(self.write("cluster.yaml", text))]

    def env(self) -> dict[str, str]:
        return {"KILOCARD_HOME": str(self.folder)}  # the ledger goes with the run

    def program(self) -> list[str]:
        script = Path(sys.executable).with_name("kilocard")
        return [str(script)] if script.exists() else [sys.executable, "-m", "kilocard.cli.main"]

    def version(self) -> str:
        import kilocard

        return f"kilocard {kilocard.__version__}"


class Compiled(Kilocard):
    """The same with its hot path as C, in an environment of its own; made anew when src/ changes."""

    name = "kilocard-compiled"

    def prepare(self) -> None:
        self.home = self.cache / self.name
        digest = hashlib.sha256()
        for path in sorted((ROOT / "src").rglob("*.py")):
            digest.update(path.read_bytes())
        stamp = self.home / "source"
        if stamp.exists() and stamp.read_text() == digest.hexdigest():
            return
        print("compiling kilocard (about a minute)", file=sys.stderr)
        try:
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(self.home)], check=True, capture_output=True)
            path = f"{self.home / 'bin'}:{os.environ['PATH']}"
            subprocess.run(
                [str(ROOT / "scripts" / "install-compiled")],
                check=True,
                capture_output=True,
                text=True,
                timeout=900,
                env={**os.environ, "PATH": path},
            )
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as e:
            raise Unavailable(f"scripts/install-compiled failed: {str(e.stderr)[-300:]}") from e
        stamp.write_text(digest.hexdigest())

    def env(self) -> dict[str, str]:
        return {**super().env(), "PYTHONPATH": ""}

    def program(self) -> list[str]:
        return [str(self.home / "bin" / "kilocard")]

    def version(self) -> str:
        return f"{super().version()} compiled"
