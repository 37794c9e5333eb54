"""TTFT of the table's closed loops, played on the engine model as a benchmark plays them.

    python -m tests.ground_truth.speed_closed_loop

All requests begin at once, ten rounds of them, lengths of 80 to 100 % of what is printed: what bunches prompts is the
benchmark, and the steady state of the closed form has none of it. A sample: the curves' points of small batches.
"""

from __future__ import annotations

from random import Random

from tests.ground_truth.speed import ENGINES, shipped_profile, spread
from tests.ground_truth.speed_points import Point, closed_loop

from kilocard.perf.profile import Profile
from kilocard.sim.engine import Engine

ROUNDS = 10
#: output tokens of a run at most: about half a second of CPU
MOST = 170_000


def played(card: Profile, point: Point) -> tuple[float, float]:
    """Mean (TTFT, TPOT) of all requests, seconds; TTFT with the way in and the steps ahead that the engine has not."""
    engine, rng, streams = Engine(card), Random(5), int(point.concurrency or 1)
    born: dict[str, tuple[float, int]] = {}
    first: dict[str, float] = {}
    tpots: list[float] = []

    def ask(now: float) -> None:
        name, short = str(len(born)), 1 - 0.2 * rng.random()
        output = max(2, int(point.output * (1 - 0.2 * rng.random())))
        engine.add(name, max(1, int(point.input * short)), output, now)
        born[name] = (now, output)

    now = 0.0
    for _ in range(streams):
        ask(now)
    while (step := engine.step(now)) is not None:
        now += step.duration_s
        for name, _ in step.emitted:
            first.setdefault(name, now)
        for name in step.finished:
            tpots.append((now - first[name]) / (born[name][1] - 1))
            if len(born) < ROUNDS * streams:
                ask(now)
    tpot = sum(tpots) / len(tpots)
    ttft = sum(first[name] - begin for name, (begin, _) in born.items()) / len(born)
    return ttft + card.request_s + card.steps_ahead * tpot, tpot


def sample(engine: str) -> list[Point]:
    rows = [row for row in closed_loop(engine) if ROUNDS * (row.concurrency or 0) * row.output <= MOST]
    return rows[:: max(1, len(rows) // 60)]


def report() -> str:
    lines = [f"{'closed loops, played':<30} rows |   TTFT     p90 |   TPOT     p90"]
    for engine in ENGINES:
        ttfts, tpots = [], []
        for point in sample(engine):
            ttft, tpot = played(shipped_profile(point), point)
            assert point.ttft_s and point.tpot_s
            ttfts.append(ttft / point.ttft_s - 1)
            tpots.append(tpot / point.tpot_s - 1)
        lines.append(f"{engine:<30} {len(ttfts):4} | {spread(ttfts)} | {spread(tpots)}")
    return "\n".join(lines)


if __name__ == "__main__":
    print(report())
