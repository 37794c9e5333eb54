"""Step by step what vLLM's own scheduler decided: who gets how many tokens, prefix hits, preemptions, free blocks.

vllm_schedules.json was recorded by scripts/record-vllm-schedules from vLLM's Scheduler and KVCacheManager.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kilocard.perf.builtin import SMALL_FAST
from kilocard.sim.engine import Engine
from kilocard.sim.fast import FastEngine

RECORDED = json.loads((Path(__file__).parent / "vllm_schedules.json").read_text())


def play(case: dict[str, Any]) -> list[str]:
    """The lines that the script writes."""
    limits = dict(case["config"])
    profile = replace(SMALL_FAST, block_size=16)
    engine = Engine(profile, kv_tokens=16 * limits.pop("blocks"), **limits)
    lines = []
    step = 0
    while step <= max(request[2] for request in case["requests"]) or not engine.idle:
        for number, (prompt, output, at, text, shared, priority) in enumerate(case["requests"]):
            if at == step:
                blocks = [1000 * text + place for place in range(shared)]
                engine.add(str(number), prompt, output, step, blocks=blocks, block_tokens=16, priority=priority)
        for number, at in case["aborts"]:
            if at == step:
                engine.abort(str(number))
        before = {sequence: sequence.computed for sequence in engine._running}
        result = engine.step(step)
        if result is not None:
            words = []
            for sequence in sorted(engine._running, key=lambda each: int(each.request_id)):
                tokens = sequence.computed - before.get(sequence, sequence.cached)
                if tokens:
                    came = "" if sequence in before else f"@{sequence.cached}"
                    words.append(sequence.request_id + (f"+{tokens}" if tokens > 1 else "") + came)
            out = sorted(result.preempted, key=int)
            counts = f"{engine.pool.free} {engine.running} {engine.waiting}"
            lines.append(f"{step}: {' '.join(words)}; {' '.join(out)}; {counts}")
        engine.settle()
        step += 1
    return lines


@pytest.mark.parametrize("case", RECORDED["cases"], ids=[str(number) for number in range(len(RECORDED["cases"]))])
def test_the_model_decides_what_vllm_decided(case: dict[str, Any]) -> None:
    assert play(case) == case["steps"]


def test_the_record_has_what_can_go_wrong() -> None:
    """Preemptions, prefix hits, hits of resumed requests, aborts, both policies: else it would prove little."""
    preempted = hits = resumed = 0
    for case in RECORDED["cases"]:
        out: set[str] = set()
        for line in case["steps"]:
            scheduled, thrown_out, _ = line.partition(": ")[2].split("; ")
            for word in scheduled.split():
                name, at, computed = word.partition("@")
                if at and computed != "0":
                    hits += 1
                    resumed += name.partition("+")[0] in out
            out.update(thrown_out.split())
            preempted += len(thrown_out.split())
    assert preempted > 50
    assert hits > 100
    assert resumed > 30
    assert sum(len(case["aborts"]) for case in RECORDED["cases"]) > 20
    assert {case["config"]["policy"] for case in RECORDED["cases"]} == {"fcfs", "priority"}


@pytest.mark.parametrize("case", RECORDED["ahead"], ids=[str(number) for number in range(len(RECORDED["ahead"]))])
def test_asynchronous_scheduling_gives_tokens_when_vllm_gave_them(case: dict[str, Any]) -> None:
    """A step takes a second there and here."""
    limits = dict(case["config"])
    profile = replace(SMALL_FAST, block_size=16, step_fixed_s=1, prefill_token_s=0, decode_seq_s=0, kv_token_s=0)
    engine = FastEngine(profile, kv_tokens=16 * limits.pop("blocks"), **limits)
    events = []
    for number, (prompt, output, at, text, shared, _) in enumerate(case["requests"]):
        events += engine.advance(at)
        blocks = [1000 * text + place for place in range(shared)]
        engine.add(str(number), prompt, output, at, blocks=blocks, block_tokens=16)
    events += engine.advance(1e6)
    assert sorted([event.at_s, event.kind, event.request_id] for event in events) == case["events"]
