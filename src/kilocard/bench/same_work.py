"""Before two runs are compared: were they asked the same, of the same?"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Literal

from kilocard.bench.caveats import places
from kilocard.bench.curve import Load
from kilocard.bench.document import Finding, PointResult, Results
from kilocard.bench.request_words import request_words

#: shares of the prompts' tokens from the prefix cache, and of failed requests, may differ by so much
CACHE, ERRORS = 0.05, 0.02
#: means of two runs that differ by more than this share are of different work
DIFFERENT_WORK = 0.05


def setting(a: Results, b: Results) -> list[Finding]:
    """What else was not the same."""
    found = []
    # empty in results of before it was kept: nothing is known of them
    known = all(each.about.request for each in (a, b))
    requests = [f'"{request_words(each.about.request)}"' if known else "" for each in (a, b)]
    for name, before, after in (
        ("model", a.target.model, b.target.model),
        ("engine", a.target.engine, b.target.engine),
        ("engine version", a.target.engine_version, b.target.engine_version),
        ("address", a.target.url, b.target.url),
        ("endpoint", a.target.path, b.target.path),
        ("max-num-seqs", a.target.max_num_seqs, b.target.max_num_seqs),
        ("KV tokens", a.target.kv_tokens, b.target.kv_tokens),
        ("prompts", a.about.prompts, b.about.prompts),
        ("request", *requests),
        ("load tester's machine", a.about.machine, b.about.machine),
        ("kilocard", a.about.kilocard, b.about.kilocard),
    ):
        if before != after:
            weighs = name in ("model", "prompts", "endpoint", "request")
            severity: Literal["warning", "note"] = "warning" if weighs else "note"
            found.append(Finding(severity=severity, text=f"Not the same {name}: {before or '–'} and {after or '–'}."))
    for name, each in (("A", a), ("B", b)):
        limited = [point for point in each.points if point.client.limited]
        if limited:
            text = f"{name}: the load tester was the limit at {places(limited)} ({limited[0].client.limited})."
            found.append(Finding(severity="error", text=text))
    return found


def work(a: Load, b: Load) -> list[str]:
    """Why the two did different work at this load."""
    texts = different_work(_lengths(a), _lengths(b))
    hits = [load.mean_of(lambda point: point.engine.prefix_hit_share) for load in (a, b)]
    if hits[0] is not None and hits[1] is not None and abs(hits[0] - hits[1]) > CACHE:
        texts.append(f"prefix cache: {hits[0]:.0%} of the prompts' tokens were found in it by A, {hits[1]:.0%} by B")
    errors = [load.error_share for load in (a, b)]
    if abs(errors[0] - errors[1]) > ERRORS:
        texts.append(f"{errors[0]:.0%} of A's requests failed and {errors[1]:.0%} of B's")
    return texts


def different_work(before: Mapping[str, float], after: Mapping[str, float]) -> list[str]:
    """Both have the means `input_tokens` and `output_tokens`; what is missing is not compared."""
    texts = []
    for key, name in (("output_tokens", "answers"), ("input_tokens", "prompts")):
        if key not in before or key not in after:
            continue
        a, b = before[key], after[key]
        if abs(a - b) > DIFFERENT_WORK * max(a, b):
            texts.append(
                f"the two runs did different work: their {name} have {a:.0f} and {b:.0f} tokens on average, so that "
                "tokens/s, requests/s and latencies can't be set against each other"
            )
    return texts


def _lengths(load: Load) -> dict[str, float]:
    found = {}
    for key, name in (("input_tokens", "input"), ("output_tokens", "output")):
        known = load.mean_of(partial(_mean_length, name))
        if known is not None:
            found[key] = known
    return found


def _mean_length(name: str, point: PointResult) -> float | None:
    length = point.lengths.get(name)
    return None if length is None else length.mean
