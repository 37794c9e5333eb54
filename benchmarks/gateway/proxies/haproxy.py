"""HAProxy with one thread and `http-no-delay`, without which small chunks wait for one another."""

from __future__ import annotations

import shutil

from benchmarks.gateway.proxies.base import Proxy, Unavailable, output

_CONFIG = """
global
  nbthread 1
  maxconn 8192
defaults
  mode http
  option http-no-delay
  http-reuse always
  timeout connect 2s
  timeout client 600s
  timeout server 600s
frontend in
  bind 127.0.0.1:{port}
  default_backend replicas
backend replicas
  balance leastconn
{servers}
"""


class HAProxy(Proxy):
    name = "haproxy"

    def program(self) -> str:
        for place in ("haproxy", "/usr/sbin/haproxy"):
            if found := shutil.which(place):
                return found
        raise Unavailable("apt-get install haproxy")

    def prepare(self) -> None:
        self.program()

    def argv(self) -> list[str]:
        servers = "\n".join(f"  server r{i} 127.0.0.1:{p}" for i, p in enumerate(self.upstreams))
        return [
            self.program(),
            "-db",
            "-f",
            str(self.write("haproxy.cfg", _CONFIG.format(port=self.port, servers=servers))),
        ]

    def version(self) -> str:
        return " ".join(output(self.program(), "-v").split()[:3])
