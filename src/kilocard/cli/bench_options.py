"""The words of `kilocard bench`'s command line → what is to be measured."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from kilocard.bench.asked import Asked
from kilocard.bench.document import Slo
from kilocard.bench.loads import Load, parse_rates, parse_sweep
from kilocard.cli.trace_file import trace_text
from kilocard.core.errors import UsageError
from kilocard.spec.units import UnitError, duration
from kilocard.workload.lengths import read_length
from kilocard.workload.mixes import Kind, Mix, read_mix
from kilocard.workload.read import read_trace
from kilocard.workload.request import WorkloadRequest
from kilocard.workload.reshape import cut, spread
from kilocard.workload.sessions import Chat

DEFAULT_INPUT, DEFAULT_OUTPUT = "512", "128"
DEFAULT_DURATION = "20s"


@dataclass(frozen=True, slots=True)
class Words:
    """As typed; None: not given."""

    sweep: str | None = None
    rate: str | None = None
    trace: Path | None = None
    burstiness: float = 1.0
    input: str | None = None
    output: str | None = None
    mix: str | None = None
    turns: str | None = None
    think: str = "0s"
    system: int = 0
    duration: str | None = None
    requests: int | None = None
    repeats: int = 1
    most: int = 512
    max_seconds: str = "30m"
    single: bool = True
    seed: int | None = None


def asked_of(words: Words) -> Asked:
    """Raises UsageError, which names the option."""
    given = [name for name in ("sweep", "rate", "trace") if getattr(words, name) is not None]
    if len(given) > 1:
        raise UsageError(f"--{given[0]} and --{given[1]} exclude each other: one run has one kind of load")
    if words.duration is not None and words.requests is not None:
        raise UsageError("--duration and --requests both say how much is measured: give one of them")
    if words.burstiness != 1.0 and words.rate is None:
        raise UsageError("--burstiness is about arrivals: it needs --rate")
    seed = secrets.randbelow(2**32) if words.seed is None else words.seed
    mix = _mix(words)
    trace = () if words.trace is None else _trace(words.trace, words.duration, seed)
    seconds = None if words.requests is not None else _seconds("--duration", words.duration or DEFAULT_DURATION)
    return Asked(
        mix=Mix((_typical(trace),)) if trace else mix,
        chat=_chat(words, mix),
        loads=_loads(words),
        trace=trace,
        duration_s=seconds,
        requests=words.requests,
        repeats=words.repeats,
        most=words.most,
        burstiness=words.burstiness,
        max_seconds=_seconds("--max-seconds", words.max_seconds),
        single=words.single,
        seed=seed,
    )


def slo_of(ttft: str | None, tpot: str | None, e2e: str | None) -> Slo | None:
    """None where no bound was given."""
    if ttft is None and tpot is None and e2e is None:
        return None
    return Slo(
        ttft_s=None if ttft is None else _seconds("--slo-ttft", ttft),
        tpot_s=None if tpot is None else _seconds("--slo-tpot", tpot),
        e2e_s=None if e2e is None else _seconds("--slo-e2e", e2e),
    )


def body_of(text: str | None) -> dict[str, Any]:
    """`--body`: fields for each request."""
    if text is None:
        return {}
    try:
        fields = json.loads(text)
    except ValueError as error:
        raise UsageError(f"--body: {error}: write a JSON object, like '{{\"top_p\": 0.9}}'") from None
    if not isinstance(fields, dict):
        raise UsageError("--body: write a JSON object, like '{\"top_p\": 0.9}'")
    return fields


def _loads(words: Words) -> tuple[Load, ...]:
    if words.sweep is not None:
        return tuple(parse_sweep(words.sweep))
    return tuple(parse_rates(words.rate)) if words.rate is not None else ()


def _mix(words: Words) -> Mix:
    if words.mix is None:
        return Mix.of(read_length(words.input or DEFAULT_INPUT), read_length(words.output or DEFAULT_OUTPUT))
    if words.input is not None or words.output is not None:
        raise UsageError("--mix has its own lengths: leave --input and --output away")
    return read_mix(words.mix)


def _chat(words: Words, mix: Mix) -> Chat | None:
    if words.turns is None:
        if words.system or words.think != "0s":
            raise UsageError("--system and --think are about conversations: they need --turns")
        return None
    if words.trace is not None or len(mix.kinds) > 1:
        raise UsageError(
            "--turns makes conversations out of --input and --output: it goes with neither --mix nor --trace"
        )
    return Chat(
        question=mix.kinds[0].input,
        answer=mix.kinds[0].output,
        turns=read_length(words.turns),
        think_s=_seconds("--think", words.think),
        system_tokens=words.system,
    )


def _trace(path: Path, until: str | None, seed: int) -> tuple[WorkloadRequest, ...]:
    with trace_text(path) as lines:
        read = read_trace(lines).requests
    requests = spread(read, Random(seed))  # noqa: S311  # nothing secret is drawn
    if until is not None:
        requests = cut(requests, 0.0, _seconds("--duration", until))
    if not requests:
        raise UsageError(f"--trace {path}: no request in it" + (f" before {until}" if until else ""))
    return tuple(requests)


def _typical(trace: tuple[WorkloadRequest, ...]) -> Kind:
    """For warm-up and the single-request phase: the mean of the trace."""
    count = len(trace)
    return Kind(
        read_length(str(max(1, sum(request.input_tokens for request in trace) // count))),
        read_length(str(max(1, sum(request.output_tokens for request in trace) // count))),
    )


def _seconds(option: str, text: str) -> float:
    try:
        return duration(float(text)) if text.replace(".", "", 1).isdecimal() else duration(text)
    except UnitError as error:
        raise UsageError(f"{option} {text}: {error}") from None
