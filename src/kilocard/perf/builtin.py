"""Profiles that come with kilocard: for demonstrations, for the articles' example, and one that was measured."""

from __future__ import annotations

from kilocard.core.errors import SpecError
from kilocard.perf.profile import Profile

SMALL_FAST = Profile(
    name="small-fast",
    step_fixed_s=0.008,
    prefill_token_s=20e-6,
    decode_seq_s=50e-6,
    kv_token_s=5e-9,
    kv_tokens=65_536,
    max_num_seqs=32,
    max_num_batched_tokens=2048,
    max_model_len=8192,
    note="No real engine: quick enough for a demonstration (about 120 tokens/s for one stream), slow enough to queue.",
)

A100_7B = Profile(
    name="a100-7b",
    step_fixed_s=0.022,
    prefill_token_s=100e-6,
    decode_seq_s=180e-6,
    kv_token_s=41e-9,
    kv_tokens=880_000,
    max_num_seqs=32,
    max_num_batched_tokens=2048,
    max_model_len=32_768,
    note=(
        "A 7B model in BF16 with grouped-query attention (28 layers, 4 KV heads of 128: 57,344 bytes of KV a token) on "
        "one A100 80 GB. Prefill: 15.2 GFLOP a token at half of 312 TFLOP/s = 97 µs. KV: 57,344 bytes at 1.4 TB/s = "
        "41 ns a token. Weights alone take 15.2 GB / 1.4 TB/s = 11 ms a step; 22 ms fixed and 180 µs a sequence are "
        "set so that 32 streams of 500 tokens give about 1,100 tokens/s, the articles' 1,000 to 1,200 for such a "
        "replica at the 32 slots that they run it with: 22 + 32 × 0.18 + 32 × 500 × 41e-6 ≈ 28.4 ms a step. Room: "
        "80 GiB × 0.85 − 15.2 GB − 7 GB ≈ 50.8 GB."
    ),
)

CPU_SMOL = Profile(
    name="cpu-smol",
    step_fixed_s=0.032,
    prefill_token_s=1.42e-3,
    decode_seq_s=1.15e-3,
    kv_token_s=3.5e-6,
    kv_tokens=46_592,
    max_num_seqs=8,
    max_num_batched_tokens=2048,
    block_size=128,
    max_model_len=2048,
    provenance="measured",
    note=(
        "vLLM 0.32.0 on two CPU cores, SmolLM2-135M in BF16, eager mode, 64 tokens in and 64 out, closed loop of 1 to "
        "32 streams; the client and a metrics poll shared the cores. Fitted by running sim.engine against the measured "
        "points: throughput and time between tokens within 15 %, preemptions exactly."
    ),
)

BUILTIN = {profile.name: profile for profile in (SMALL_FAST, A100_7B, CPU_SMOL)}


def builtin(name: str) -> Profile:
    """Raises SpecError that names the profiles there are."""
    try:
        return BUILTIN[name]
    except KeyError:
        raise SpecError(f"profile {name!r} is not built in; there are {', '.join(BUILTIN)}") from None
