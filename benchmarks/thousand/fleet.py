"""The processes: one with all emulated engines, and a gateway before them, as a user would start them."""

from __future__ import annotations

import json
import re
import sys
import urllib.request
from pathlib import Path
from typing import Any

from benchmarks.gateway.children import Child, answers, free_port

ROOT = Path(__file__).resolve().parents[2]
MODEL = "emulated"

_CLUSTER = """
gateway:
  listen: "127.0.0.1:{port}"
  admin: "127.0.0.1:{admin}"
  scrape_interval: {scrape}s
models:
  {model}: {{policy: {policy}, pools: {{replicas: 100}}}}
pools:
  replicas:
    engine: external
    endpoints: [{endpoints}]
"""


def program(given: str | None) -> list[str]:
    """How `kilocard` is started: as asked for, or from this Python."""
    if given is not None:
        return [given]
    script = Path(sys.executable).with_name("kilocard")
    return [str(script)] if script.exists() else [sys.executable, "-m", "kilocard.cli.main"]


class Engines:
    """`count` emulated engines in one process."""

    def __init__(
        self, kilocard: list[str], count: int, speed: float, metrics_bytes: int, folder: Path, core: int | None
    ) -> None:
        self._count = count
        self._log = folder / "emulate.log"
        self.child = Child(
            [
                *kilocard, "emulate", "--count", str(count), "--port", "0", "--speed", str(speed),
                "--model", MODEL, "--metrics-bytes", str(metrics_bytes),
            ],
            core=core, log=self._log, cwd=folder,
        )  # fmt: skip
        try:
            self.child.wait_until(lambda: len(self._urls()) == count, 60)
        except BaseException:
            self.child.stop()
            raise
        self.ports = [int(url.rsplit(":", 1)[1]) for url in self._urls()]

    def first_tokens(self) -> tuple[float, float]:
        """(seconds, requests): the engines' own times to the first token so far, from their arrival there."""
        totals = [0.0, 0.0]
        for port in self.ports:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
                page = answer.read().decode()
            for place, what in enumerate(("sum", "count")):
                found = re.search(rf"^vllm:time_to_first_token_seconds_{what}\{{.*\}} (\S+)$", page, re.MULTILINE)
                assert found is not None
                totals[place] += float(found[1])
        return totals[0], totals[1]

    def _urls(self) -> list[str]:
        return re.findall(r"^(http://\S+)/v1$", self._log.read_text(), re.MULTILINE)


class Gateway:
    """Ready when it has read all of the engines."""

    def __init__(
        self, kilocard: list[str], ports: list[int], policy: str, scrape_s: float, folder: Path, core: int | None
    ) -> None:
        self.port, self.admin = free_port(), free_port()
        endpoints = ", ".join(f'"http://127.0.0.1:{port}"' for port in ports)
        cluster = folder / "cluster.yaml"
        cluster.write_text(
            _CLUSTER.format(
                port=self.port, admin=self.admin, model=MODEL, policy=policy, scrape=scrape_s, endpoints=endpoints
            )
        )
        self.child = Child(
            [*kilocard, "gateway", str(cluster)],
            core=core,
            log=folder / "gateway.log",
            env={"KILOCARD_HOME": str(folder)},
            cwd=folder,
        )
        try:
            self.child.wait_until(lambda: answers(f"http://127.0.0.1:{self.admin}/readyz"), 60)
            self.child.wait_until(self._has_read_all, 60)
        except BaseException:
            self.child.stop()
            raise

    def _has_read_all(self) -> bool:
        return all(replica["age_s"] is not None for replica in self.state()["replicas"])

    def get(self, path: str) -> bytes:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}{path}", timeout=30) as answer:
            return bytes(answer.read())

    def state(self) -> dict[str, Any]:
        return dict(json.loads(self.get("/state")))
