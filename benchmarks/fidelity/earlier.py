"""An earlier sweep of the same engine, of which only a table is left: its loads of up to 8 fitted, the rest predicted.

Its engine and its client shared two cores, and its repeats differ by a tenth. Prompts and answers have one length
each, so a straight line through the times between tokens, and one through the waves' TTFT, are all that can be fitted.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from kilocard.core.statistics import mean, percentile
from kilocard.perf.profile import Profile
from kilocard.sim.played import Asked, play

TABLE = Path(__file__).parent / "measured" / "earlier-sweep.csv"
#: slots of its engine: the loads that are fitted
FITTED = 8


@dataclass(frozen=True)
class Row:
    """One load: what was seen, what is modelled. Tokens a second, seconds, requests."""

    setting: str
    concurrency: int
    throughput: tuple[float, float]
    ttft_p50_s: tuple[float, float]
    itl_s: tuple[float, float]
    preemptions: tuple[int, int]


def rows() -> Iterator[Row]:
    """The loads that are not fitted."""
    lines = [line for line in TABLE.read_text().splitlines() if not line.startswith("#")]
    table = list(csv.DictReader(lines))
    few = [row for row in table if row["setting"] == "default" and int(row["concurrency"]) <= FITTED]
    profile = _profile(few)
    for row in table:
        if row not in few:
            yield _played(row, profile)


def markdown() -> str:
    lines = [
        "| setting | at once | tokens/s | TTFT p50 | between tokens | preemptions |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for row in rows():
        cells = [
            f"{seen:.0f} → {said:.0f} {said / seen - 1:+.0%}"
            for seen, said in (
                row.throughput,
                tuple(value * 1e3 for value in row.ttft_p50_s),
                tuple(value * 1e3 for value in row.itl_s),
            )
        ]
        lines.append(
            f"| {row.setting} | {row.concurrency} | {cells[0]} | {cells[1]} ms | {cells[2]} ms | "
            f"{row.preemptions[0]} → {row.preemptions[1]} |"
        )
    return "\n".join(lines)


def _profile(few: list[dict[str, str]]) -> Profile:
    """All requests of a wave have one length, so they run in step: prompts in one wave, then tokens in another."""
    at_once = [float(row["concurrency"]) for row in few]
    fixed, sequence = _line(at_once, [float(row["itl_mean_ms"]) / 1e3 for row in few])
    _, prompt = _line(at_once, [float(row["ttft_p50_ms"]) / 1e3 for row in few])
    return Profile(
        name="earlier",
        step_fixed_s=fixed,
        prefill_token_s=prompt / float(few[0]["input"]),
        decode_seq_s=sequence,
        kv_token_s=0.0,
        kv_tokens=int(few[0]["kv_tokens"]),
        max_num_seqs=FITTED,
        max_num_batched_tokens=2048,
        block_size=128,
    )


def _line(xs: list[float], ys: list[float]) -> tuple[float, float]:
    """Least squares: value at 0, and slope."""
    x, y = mean(xs), mean(ys)
    slope = sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True)) / sum((a - x) ** 2 for a in xs)
    return y - slope * x, slope


def _played(row: dict[str, str], profile: Profile) -> Row:
    profile = replace(profile, max_num_seqs=int(row["max_num_seqs"]), kv_tokens=int(row["kv_tokens"]))
    concurrency = int(row["concurrency"])
    asked = [Asked(int(row["input"]), int(row["output"]))] * (concurrency * int(row["requests_per_slot"]))
    played = play(profile, asked, concurrency=concurrency, prefix_cache=True)
    seconds = max(each.tokens_s[-1] for each in played)
    gaps = [(each.tokens_s[-1] - each.tokens_s[0]) / (each.asked.output - 1) for each in played]
    return Row(
        row["setting"],
        concurrency,
        (float(row["out_tok_s"]), sum(each.asked.output for each in played) / seconds),
        (float(row["ttft_p50_ms"]) / 1e3, percentile([each.tokens_s[0] - each.sent_s for each in played], 0.5)),
        (float(row["itl_mean_ms"]) / 1e3, mean(gaps)),
        (int(row["preemptions"]), sum(len(each.preempted_s) for each in played)),
    )
