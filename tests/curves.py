"""Throughput curves whose knee is known, and two that were measured."""

from __future__ import annotations

import math
import random

from kilocard.bench.document import ClientSeen, EngineSeen, PointResult, Series, Spread

#: vLLM 0.32 on two CPU cores, max-num-seqs 8, both repeats: concurrency → output tokens/s
CPU_VLLM = {
    1: (27.6, 28.9), 2: (42.8, 48.8), 4: (99.8, 96.2), 8: (152, 140),
    12: (156, 145), 16: (160, 163), 24: (159, 155), 32: (163, 153),
}  # fmt: skip
#: Qwen3-14B on an H100 (vLLM 0.23, 1,024 in, 128 out, inference-sim/residency-vllm): offered → achieved requests/s
QWEN_H100 = {2: 2.02, 4: 3.94, 6: 6.01, 8: 8.03, 10: 10.0, 12: 11.98, 18: 17.16, 24: 17.37, 30: 17.46}


def closed_point(concurrency: int, tokens_per_s: float, *, repeat: int = 0, **more: object) -> PointResult:
    return made(concurrency=concurrency, output_tokens_per_s=tokens_per_s, repeat=repeat, **more)


def open_point(rate: float, achieved: float, **more: object) -> PointResult:
    return made(
        rate_per_s=rate, offered_per_s=rate, requests_per_s=achieved, output_tokens_per_s=128 * achieved, **more
    )


def made(**values: object) -> PointResult:
    """A point with nothing in it but what is said."""
    plain: dict[str, object] = {
        "started_s": 0.0, "window_s": 600.0, "warmup": 0, "requests": 1000, "completed": 1000, "errors": 0,
        "errors_by_kind": {}, "cut_off": 0, "offered_per_s": 1.0, "requests_per_s": 1.0, "output_tokens_per_s": 1.0,
        "total_tokens_per_s": 1.0, "input_tokens": None, "output_tokens": None, "tokens_counted_by": "usage",
        "in_flight_mean": 1.0, "ttft_s": None, "tpot_s": None, "itl_s": None, "e2e_s": None, "withheld": {},
        "engine": EngineSeen(), "client": ClientSeen(cpu_share=0.1, lag_p99_s=0.0, limited=None), "histograms": {},
        "series": Series(at_s=[], in_flight=[], output_tokens_per_s=[]),
    }  # fmt: skip
    return PointResult(**(plain | values))  # type: ignore[arg-type]  # the caller names fields


def flat_spread(seconds: float) -> Spread:
    return Spread(mean=seconds, p50=seconds, p95=seconds, p99=seconds, max=seconds, n=100)


def saturating(
    loads: list[int], slots: int, bend: float, fall: float = 0.0, noise: float = 0.0, rng: random.Random | None = None
) -> list[float]:
    """Throughput that bends like c / (1 + bend × c / slots) up to `slots`, and changes by the power -`fall` past it."""
    curve = []
    for load in loads:
        busy = min(load, slots)
        value = busy / (1 + bend * busy / slots) * (max(load, slots) / slots) ** -fall
        curve.append(value * math.exp(rng.gauss(0, noise)) if rng else value)
    return curve
