"""LiteLLM's proxy, for scale only: off by default, since it takes minutes to install and the streams overload it."""

from __future__ import annotations

import json

from benchmarks.gateway.pages import MODEL
from benchmarks.gateway.proxies.base import KEY, Proxy, venv


class LiteLLM(Proxy):
    name = "litellm"
    default = False
    start_timeout = 120.0
    ready_path = "/health/liveliness"

    def prepare(self) -> None:
        self.bin = venv(self.cache, "litellm", "litellm[proxy]")

    def argv(self) -> list[str]:
        deployments = [
            {
                "model_name": MODEL,
                "litellm_params": {"model": f"openai/{MODEL}", "api_base": f"http://127.0.0.1:{p}/v1", "api_key": KEY},
            }
            for p in self.upstreams
        ]
        path = self.write("litellm.yaml", json.dumps({"model_list": deployments}))
        argv = [str(self.bin / "litellm"), "--config", str(path), "--host", "127.0.0.1", "--port", str(self.port)]
        return [*argv, "--num_workers", "1"]

    def env(self) -> dict[str, str]:
        return {
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "LITELLM_LOG": "ERROR",
            "LITELLM_TELEMETRY": "False",
            # on loopback, for as long as the benchmark runs; without it (1.110) there is no start without a master key
            "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
        }

    def version(self) -> str:
        return "litellm"
