"""What an emulated engine counts beside sim.engine's own counters. Wall seconds, as a client would see them."""

from __future__ import annotations

from collections import Counter

from kilocard.emulator.histogram import Histogram

# Bounds of vLLM 0.32.0's page.
TTFT = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0, 640.0, 2560.0,
)  # fmt: skip
ITL = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
PHASE = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
    1920.0, 7680.0,
)  # fmt: skip
LENGTH = (
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000,
)  # fmt: skip
STEP = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16_384)


class Observed:
    def __init__(self) -> None:
        self.ttft = Histogram(TTFT)
        self.itl = Histogram(ITL)
        self.e2e = Histogram(PHASE)
        self.queue = Histogram(PHASE)
        self.prefill = Histogram(PHASE)
        self.decode = Histogram(PHASE)
        self.inference = Histogram(PHASE)
        self.prompt_tokens = Histogram(LENGTH)
        self.generation_tokens = Histogram(LENGTH)
        self.max_tokens = Histogram(LENGTH)
        self.step_tokens = Histogram(STEP)
        #: by finished_reason: stop, length, abort, error
        self.finished: Counter[str] = Counter()
        #: requests by (handler, status class), as prometheus-fastapi-instrumentator counts them
        self.http: Counter[tuple[str, str]] = Counter()
