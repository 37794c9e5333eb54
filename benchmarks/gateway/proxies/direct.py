"""No proxy: what load and upstream can do on their own core."""

from __future__ import annotations

from benchmarks.gateway.proxies.base import Proxy


class Direct(Proxy):
    name = "direct"
