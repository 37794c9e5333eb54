"""vllm-router (Rust): the vLLM project's own balancer, in a virtual environment of its own.

Its cheapest policy, round robin, is the peer by default; `power_of_two` looks at load as ours does. Its default
(`cache_aware`) does more per request. It sizes its threads by the cores it may use, here one.
"""

from __future__ import annotations

from benchmarks.gateway.children import free_port
from benchmarks.gateway.proxies.base import Proxy, venv

VERSION = "0.1.17"


class VllmRouter(Proxy):
    name = "vllm-router"
    policy = "round_robin"
    start_timeout = 60.0

    def prepare(self) -> None:
        self.bin = venv(self.cache, "vllm-router", f"vllm-router=={VERSION}")

    def argv(self) -> list[str]:
        return [
            *(str(self.bin / "vllm-router"), "--host", "127.0.0.1", "--port", str(self.port)),
            *("--worker-urls", *(f"http://127.0.0.1:{p}" for p in self.upstreams)),
            *("--policy", self.policy, "--log-level", "warning", "--max-concurrent-requests", "8192"),
            *("--prometheus-host", "127.0.0.1", "--prometheus-port", str(free_port())),
            *("--worker-startup-check-interval", "1"),
        ]

    def version(self) -> str:
        return f"vllm-router {VERSION} --policy {self.policy}"


class VllmRouterPowerOfTwo(VllmRouter):
    name = "vllm-router-p2c"
    policy = "power_of_two"
    default = False
