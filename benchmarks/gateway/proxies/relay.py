"""No proxy but a floor: uvloop that passes bytes on unread."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.gateway.proxies.base import Proxy

ROOT = Path(__file__).resolve().parents[3]


class Relay(Proxy):
    name = "relay"
    default = False

    def argv(self) -> list[str]:
        return [sys.executable, "-m", "benchmarks.gateway.relay", str(self.port), *map(str, self.upstreams)]

    def env(self) -> dict[str, str]:
        return {"PYTHONPATH": str(ROOT)}
