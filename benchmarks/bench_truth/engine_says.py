"""What the engine itself counted while a tool measured it: the judge where tools disagree.

The means of its own histograms, from before the tool started to after it ended: a tool's warm-up and probes are in
them, a request or two alone of many. The engine's times begin when it has read a request and end before the answer is
sent.
"""

from __future__ import annotations

import urllib.request
from dataclasses import dataclass

#: vLLM's names since 0.12
TPOT = "vllm:request_time_per_output_token_seconds"
E2E = "vllm:e2e_request_latency_seconds"


@dataclass(frozen=True)
class EngineSays:
    """Means, seconds."""

    requests: int
    tpot_s: float
    e2e_s: float


@dataclass(frozen=True)
class Counters:
    values: dict[str, float]

    @classmethod
    def read(cls, url: str) -> Counters:
        with urllib.request.urlopen(f"{url}/metrics", timeout=10) as page:
            text = page.read().decode()
        values: dict[str, float] = {}
        for line in text.splitlines():
            name, _, rest = line.partition("{")
            if name.removesuffix("_sum").removesuffix("_count") in {TPOT, E2E} and not name.endswith("_bucket"):
                values[name] = values.get(name, 0.0) + float(rest.rsplit(" ", 1)[1])
        return cls(values)

    def until(self, after: Counters) -> EngineSays:
        def mean(name: str) -> float:
            count = after.values[f"{name}_count"] - self.values.get(f"{name}_count", 0.0)
            return (after.values[f"{name}_sum"] - self.values.get(f"{name}_sum", 0.0)) / count

        requests = after.values[f"{E2E}_count"] - self.values.get(f"{E2E}_count", 0.0)
        return EngineSays(round(requests), mean(TPOT), mean(E2E))
