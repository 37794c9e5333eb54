"""Runs of the engine model on virtual time, in the files that `kilocard bench` writes."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from random import Random

from tests.run_results import results

from kilocard.bench import requests_log
from kilocard.bench.document import About, TargetSeen
from kilocard.bench.point import EngineSample, Point
from kilocard.bench.record import CUT_OFF, RequestRecord
from kilocard.bench.results import dump
from kilocard.perf.profile import Profile
from kilocard.sim.played import Asked, Played, play


def record(each: Played, ended_s: float) -> RequestRecord:
    times = [at_s for at_s in each.tokens_s if at_s <= ended_s]
    whole = len(times) == len(each.tokens_s)
    return RequestRecord(
        intended_s=each.sent_s,
        sent_s=each.sent_s,
        asked_input=each.asked.prompt,
        asked_output=each.asked.output,
        first_s=times[0] if times else None,
        last_s=times[-1] if times else None,
        done_s=times[-1] if whole else None,
        input_tokens=each.asked.prompt if whole else None,
        output_tokens=each.asked.output if whole else None,
        gaps_s=array("d", [after - before for before, after in pairwise(times)]),
        last_share=0.01,
        first_kind="content",
        finish_reason="length" if whole else None,
        status=200,
        error=None if whole else CUT_OFF,
    )


def played_point(
    slots: int,
    profile: Profile,
    *,
    number: int = 0,
    inputs: tuple[int, int] = (20, 200),
    outputs: tuple[int, int] = (20, 60),
) -> Point:
    """A closed loop whose first requests are warm-up, cut off at the sending of the last one."""
    rng, most = Random(slots), profile.max_num_seqs
    requests = [Asked(rng.randint(*inputs), rng.randint(*outputs)) for _ in range(number or max(16, 4 * slots))]
    played = play(profile, requests, concurrency=slots)
    started, ended = played[slots].sent_s, played[-1].sent_s + 0.01
    records = [record(each, ended) for each in played]
    return Point(
        started_s=started,
        ended_s=ended,
        concurrency=slots,
        warmup=slots,
        carried=[each for each in records[:slots] if (each.last_s or ended) > started],
        records=records[slots:],
        samples=[
            EngineSample(started, running=min(slots, most), waiting=max(0, slots - most), preemptions=0),
            EngineSample(ended, running=min(slots, most), waiting=max(0, slots - most), preemptions=0),
        ],
    )


def write_run(folder: Path, points: list[Point], target: TargetSeen, alone: Sequence[RequestRecord] = ()) -> Path:
    document = results(points, target=target, about=About(started_at="2026-11-30T00:20:00Z"))
    (folder / "results.json").write_bytes(dump(document))
    (folder / "requests.jsonl").write_bytes(b"".join(requests_log.write(points, alone)))
    return folder
