"""What to know before believing the numbers: was the asked work done, counted and streamed? Pure, on records alone.

Tokens are counted by `usage` only. To tokenize the answer's text again is no substitute: it is not invertible (100
spaces are 7 tokens), and a server that holds text back would seem to have generated less.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from kilocard.bench.calibration import TOLERANCE
from kilocard.bench.point import EngineSample
from kilocard.bench.record import RequestRecord
from kilocard.core import statistics
from kilocard.metrics.rates import increase

Severity = Literal["error", "warning", "note"]

#: answers shorter than asked by more than this share are other work than was asked for
SHORTER = 0.05
#: answers longer than asked by more than this share: the server does not keep to the limit that it was given
LONGER = 0.05
#: more than this share of the tokens in the last arrival: not streamed
NOT_STREAMED = 0.5
#: prompts that should share nothing may find this share of their tokens in the prefix cache
PREFIX_HITS = 0.01
#: more tokens than this in an arrival, and the gaps between arrivals are not those between tokens
TOKENS_PER_ARRIVAL = 1.5
#: no speculation yields so many: text is held back
HELD_BACK = 8.0


@dataclass(frozen=True, slots=True)
class Finding:
    #: from a closed list: the names of the functions below
    id: str
    severity: Severity
    text: str
    numbers: Mapping[str, float] = field(default_factory=dict)


def all_findings(
    records: Sequence[RequestRecord],
    samples: Sequence[EngineSample],
    *,
    ignore_eos: bool,
    distinct: bool,
    template_tokens: float = 0.0,
) -> list[Finding]:
    """Of one point. `ignore_eos`: it was sent. `distinct`: the prompts were meant to share nothing but the chat
    template's `template_tokens` tokens."""
    found = (
        no_usage(records),
        not_streamed(records),
        tokens_per_arrival(records),
        first_kind(records),
        stopped_early(records) if ignore_eos else None,
        shorter_than_asked(records),
        longer_than_asked(records),
        prompt_length(records),
        prefix_hits(records, samples, distinct=distinct, template_tokens=template_tokens),
    )
    return [finding for finding in found if finding is not None]


# --- counted? ---


def no_usage(records: Sequence[RequestRecord]) -> Finding | None:
    complete = [record for record in records if record.error is None]
    without = sum(1 for record in complete if record.output_tokens is None)
    if not without:
        return None
    return Finding(
        "no_usage",
        "warning",
        f"{without} of {len(complete)} answers came without usage: their tokens are not counted, and TPOT and tokens/s "
        "leave them out or take each arrival for a token",
        {"without": without, "answers": len(complete)},
    )


# --- streamed? ---


def not_streamed(records: Sequence[RequestRecord]) -> Finding | None:
    """A reasoning or tool-call parser, a proxy or a guard that holds text back until the end."""
    counted = [record for record in _counted(records) if _output(record) > 1]
    tokens = sum(map(_output, counted))
    if not tokens:
        return None
    share = sum(record.last_share * _output(record) for record in counted) / tokens
    if share <= NOT_STREAMED:
        return None
    return Finding(
        "not_streamed",
        "error",
        f"not streamed: {share:.0%} of the output came in the last arrival of each answer. TTFT, TPOT and ITL say when "
        "text was let go, not when tokens were made; tokens/s by usage holds. Is there a parser or proxy that buffers?",
        {"share_in_last_arrival": share},
    )


def tokens_per_arrival(records: Sequence[RequestRecord]) -> Finding | None:
    counted = [record for record in _counted(records) if record.first_s is not None]
    arrivals = sum(1 + len(record.gaps_s) for record in counted)
    each = sum(map(_output, counted)) / arrivals if arrivals else 0.0
    if each <= TOKENS_PER_ARRIVAL:
        return None
    return Finding(
        "tokens_per_arrival",
        "warning" if each > HELD_BACK else "note",
        f"an arrival carries {each:.1f} tokens (speculative decoding, a stream interval, or a parser or proxy that "
        "collects): ITL is between arrivals, TPOT between tokens",
        {"tokens_per_arrival": each},
    )


def first_kind(records: Sequence[RequestRecord]) -> Finding | None:
    """TTFT is to the first arrival of any kind; say which kind it was where it is not the answer's text."""
    kinds = Counter(record.first_kind for record in records if record.error is None and record.first_kind)
    total = sum(kinds.values())
    others = {kind: count / total for kind, count in kinds.items() if kind != "content"}
    if not others:
        return None
    named = ", ".join(f"{kind.replace('_', ' ')} in {share:.0%}" for kind, share in sorted(others.items()))
    return Finding(
        "first_kind", "note", f"TTFT is to the first token of any kind; that was {named} of the answers", others
    )


# --- as long as asked? ---


def stopped_early(records: Sequence[RequestRecord]) -> Finding | None:
    """`ignore_eos` was sent, and answers ended by themselves."""
    complete = [record for record in records if record.error is None and record.finish_reason is not None]
    stopped = [record for record in complete if record.finish_reason == "stop"]
    if not stopped:
        return None
    lengths = [_output(record) for record in stopped if record.output_tokens is not None]
    numbers = {"stopped": float(len(stopped)), "answers": float(len(complete))}
    mean = ""
    if lengths:
        numbers["mean_output_tokens"] = statistics.mean(lengths)
        mean = f", after {numbers['mean_output_tokens']:.0f} tokens on average"
    return Finding(
        "stopped_early",
        "warning",
        f"the server does not follow ignore_eos: {len(stopped)} of {len(complete)} answers ended by themselves{mean}. "
        "Compare this run only with runs of the same output length",
        numbers,
    )


def shorter_than_asked(records: Sequence[RequestRecord]) -> Finding | None:
    counted = _counted(records)
    if not counted:
        return None
    numbers = output_lengths(records)
    asked, got = numbers["asked_mean"], numbers["mean"]
    if got >= (1.0 - SHORTER) * asked:
        return None
    return Finding(
        "shorter_than_asked",
        "warning",
        f"answers have {got:.0f} tokens on average, {asked:.0f} were asked for (shortest {numbers['min']:.0f}, median "
        f"{numbers['p50']:.0f}, longest {numbers['max']:.0f}): this is less work than the run was meant to be",
        numbers,
    )


def longer_than_asked(records: Sequence[RequestRecord]) -> Finding | None:
    """The server knows no `max_tokens`, or counts otherwise than it limits."""
    numbers = output_lengths(records)
    if not numbers or numbers["mean"] <= (1.0 + LONGER) * numbers["asked_mean"] + 1:
        return None
    return Finding(
        "longer_than_asked",
        "warning",
        f"answers have {numbers['mean']:.0f} tokens on average, {numbers['asked_mean']:.0f} were asked for (longest "
        f"{numbers['max']:.0f}): the server does not keep to max_tokens, and this is more work than the run was meant "
        "to be",
        numbers,
    )


def output_lengths(records: Sequence[RequestRecord]) -> dict[str, float]:
    """Asked and actual output tokens of complete answers with usage; empty where there are none."""
    counted = _counted(records)
    if not counted:
        return {}
    got = sorted(map(_output, counted))
    asked = [record.asked_output for record in counted]
    return {
        "asked_mean": statistics.mean(asked),
        "asked_min": min(asked),
        "asked_max": max(asked),
        "mean": statistics.mean(got),
        "min": got[0],
        "p50": statistics.of_sorted(got, 0.5),
        "p95": statistics.of_sorted(got, 0.95),
        "max": got[-1],
    }


def prompt_length(records: Sequence[RequestRecord]) -> Finding | None:
    """Prompts that are more than 1 % longer or shorter than asked, by the server's own count."""
    pairs = [(record.asked_input, record.input_tokens) for record in records if record.input_tokens is not None]
    if not pairs:
        return None
    asked, got = statistics.mean([a for a, _ in pairs]), statistics.mean([g for _, g in pairs])
    off = max(abs(g - a) / max(a, 1) for a, g in pairs)
    if off <= TOLERANCE or max(abs(g - a) for a, g in pairs) <= 1:
        return None
    return Finding(
        "prompt_length",
        "warning",
        f"prompts have {got:.1f} tokens on average, {asked:.1f} were asked for; the worst is {off:.1%} off",
        {"asked_mean": asked, "mean": got, "worst_share": off},
    )


# --- out of a cache? ---


def prefix_hit_share(records: Sequence[RequestRecord], samples: Sequence[EngineSample]) -> float | None:
    """Of the prompt tokens: found in the engine's prefix cache. By its counters over the samples, else by `usage`."""
    queries = _rise([sample.prefix_queries for sample in samples])
    hits = _rise([sample.prefix_hits for sample in samples])
    if queries and hits is not None:
        return min(1.0, hits / queries)
    told = [record for record in records if record.cached_tokens is not None and record.input_tokens]
    total = sum(record.input_tokens or 0 for record in told)
    return sum(record.cached_tokens or 0 for record in told) / total if total else None


def prefix_hits(
    records: Sequence[RequestRecord],
    samples: Sequence[EngineSample],
    *,
    distinct: bool,
    template_tokens: float = 0.0,
) -> Finding | None:
    """The share itself, as a note; a warning where distinct prompts were found in the cache all the same.

    The chat template's own tokens are the same in each prompt, so that much of a prompt may be found.
    """
    share = prefix_hit_share(records, samples)
    if share is None:
        return None
    lengths = [record.input_tokens or record.asked_input for record in records]
    template = min(1.0, template_tokens / statistics.mean(lengths)) if lengths and sum(lengths) else 0.0
    numbers = {"share": share, "template_share": template}
    if not distinct or share < PREFIX_HITS + template:
        if share < PREFIX_HITS:
            return None
        why = "the chat template is the same in all of them" if distinct else "prompts share prefixes on purpose"
        return Finding(
            "prefix_hits", "note", f"{share:.1%} of the prompt tokens came out of a prefix cache: {why}", numbers
        )
    return Finding(
        "prefix_hits",
        "warning",
        f"{share:.1%} of the prompt tokens came out of a prefix cache, though no two prompts begin alike: TTFT and "
        "throughput flatter. Does other traffic reach the server, or does a cache work on parts of prompts?",
        numbers,
    )


# --- ---


def _counted(records: Sequence[RequestRecord]) -> list[RequestRecord]:
    return [record for record in records if record.error is None and record.output_tokens is not None]


def _output(record: RequestRecord) -> int:
    return record.output_tokens or 0


def _rise(counter: Sequence[float | None]) -> float | None:
    known = [value for value in counter if value is not None]
    return sum(increase(a, b) for a, b in pairwise(known)) if len(known) > 1 else None
