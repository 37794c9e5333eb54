"""The traffic of the study: two public traces, and two shapes on which a bad policy flaps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import pi, sin
from pathlib import Path
from random import Random

from kilocard.workload.generate import generate
from kilocard.workload.mixes import read_mix
from kilocard.workload.read import read_trace
from kilocard.workload.request import WorkloadRequest

#: names of the files: Azure's own, and with the year
FILES = {
    "code": ("AzureLLMInferenceTrace_code.csv", "azure-llm-2023-code.csv"),
    "conv": ("AzureLLMInferenceTrace_conv.csv", "azure-llm-2023-conv.csv"),
}
#: copies of each request, within so many seconds of the first: twice the users, and a burst stays a burst
COPIES, WITHIN_S = 2, 5.0
MIX = "mean=1000,p99=4000/mean=120,p99=500"
SECONDS = 3600.0


def traffic(name: str, traces: Path) -> list[WorkloadRequest]:
    """By name: code, conv, sinus, edge. Raises FileNotFoundError that names the file."""
    if name in FILES:
        return _trace(name, traces)
    if name == "sinus":
        # 20 minutes up and down, between a third and three times as much
        return _shaped(lambda at: 12.0 + 8.0 * sin(2 * pi * at / 1200.0))
    # two replicas of this profile serve 11 a second: half a minute above that, half a minute below
    return _shaped(lambda at: 11.6 if at % 60.0 < 30.0 else 10.5)


def _trace(name: str, traces: Path) -> list[WorkloadRequest]:
    path = next((traces / file for file in FILES[name] if (traces / file).exists()), None)
    if path is None:
        raise FileNotFoundError(f"{traces} has none of {', '.join(FILES[name])}: see docs/scaling-study.md")
    with path.open(encoding="utf-8") as lines:
        requests = read_trace(lines).requests
    rng = Random(f"copies of {name}")
    found = [
        replace(each, at_s=each.at_s + (rng.random() * WITHIN_S if copy else 0.0))
        for each in requests
        for copy in range(COPIES)
    ]
    return sorted(found, key=lambda each: each.at_s)


class Shaped:
    """Poisson arrivals at a rate that changes: of those at the highest rate, each is kept by its chance."""

    def __init__(self, rate: Callable[[float], float], most: float = 20.0) -> None:
        self._rate, self._most = rate, most

    def times(self, rng: Random) -> Iterator[float]:
        """Seconds, without end."""
        at = 0.0
        while True:
            at += rng.expovariate(self._most)
            if rng.random() * self._most < self._rate(at):
                yield at


def _shaped(rate: Callable[[float], float]) -> list[WorkloadRequest]:
    rng = Random("shape")
    return list(generate(Shaped(rate), read_mix(MIX), rng, duration_s=SECONDS))
