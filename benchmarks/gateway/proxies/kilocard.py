"""Our gateway with everything on that a team would have on: a key, limits, queue-depth routing, usage, metrics."""

from __future__ import annotations

import hashlib
import sys
from importlib.util import find_spec
from pathlib import Path

from benchmarks.gateway.children import free_port
from benchmarks.gateway.pages import MODEL
from benchmarks.gateway.proxies.base import KEY, Proxy, Unavailable

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
        script = Path(sys.executable).with_name("kilocard")
        command = [str(script)] if script.exists() else [sys.executable, "-m", "kilocard.cli.main"]
        return [*command, "gateway", str(self.write("cluster.yaml", text))]

    def version(self) -> str:
        import kilocard

        return f"kilocard {kilocard.__version__}"
