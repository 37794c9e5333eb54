"""Prefill and decode on replicas of their own: when it pays, and what it would look like. Reported, never chosen."""

from __future__ import annotations

from dataclasses import dataclass

from kilocard.perf.profile import Profile

#: below so many parameters queue-depth routing gives most of the gain (about 80 %) for none of the work
SMALL_MODEL = 27e9
#: a fleet of fewer GPUs has too few of each kind to balance them
SMALL_FLEET = 64
#: prompts shorter than this do not hold up decoding for long, chunked as they are
SHORT_PROMPT = 4096


@dataclass(frozen=True, slots=True)
class Split:
    """An option beside the choice."""

    pays: bool
    reasons: tuple[str, ...]
    #: of the replicas, so many would prefill
    prefill_replicas: int
    decode_replicas: int
    #: GB/s of KV cache that would move from the one kind to the other, whole cluster
    transfer_gb_s: float


def split_option(
    profile: Profile,
    *,
    parameters: int,
    gpus: int,
    replicas: int,
    rate_per_s: float,
    input_tokens: float,
    output_tokens: float,
    kv_bytes_per_token: float,
    concurrency: float,
) -> Split:
    """`concurrency`: streams that a replica decodes at once; with it the time of a decode step is shared."""
    prefill = profile.step_s(input_tokens, 0, input_tokens, input_tokens**2 / 2)
    held = concurrency * (input_tokens + output_tokens / 2)
    decode = output_tokens * profile.step_s(0, concurrency, held) / max(1.0, concurrency)
    share = prefill / (prefill + decode)
    for_prefill = min(replicas - 1, max(1, round(replicas * share))) if replicas > 1 else 0
    transfer = rate_per_s * input_tokens * kv_bytes_per_token / 1e9
    against = []
    if parameters < SMALL_MODEL:
        against.append(
            f"{parameters / 1e9:.3g} B parameters, below {SMALL_MODEL / 1e9:.0f} B: queue-depth routing gives about "
            "80 % of the gain"
        )
    if gpus < SMALL_FLEET:
        against.append(
            f"{gpus} GPU{'s' * (gpus > 1)}: too few of each kind to keep both busy (worth it from {SMALL_FLEET})"
        )
    if input_tokens < SHORT_PROMPT:
        against.append(
            f"prompts of {input_tokens:,.0f} tokens: chunked prefill holds decoding up for milliseconds "
            f"(worth it from about {SHORT_PROMPT:,})"
        )
    work = f"prefill is {share:.0%} of the GPUs' time; {transfer:.2g} GB/s of KV cache would move between the kinds"
    return Split(not against, (*against, work), for_prefill, replicas - for_prefill, transfer)
