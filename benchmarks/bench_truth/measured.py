"""What one load tester said of one run, in kilocard's words (docs/bench.md defines them)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Measured:
    """Means, except where the name says otherwise. Times are seconds."""

    tool: str
    requests: int
    output_tokens_per_s: float
    ttft_s: float
    ttft_p50_s: float
    #: (end to end − TTFT) / (tokens − 1), whatever the tool calls it
    tpot_s: float
    e2e_s: float
    #: by the tool's own count, for one request: two tools that count differently did not do the same work
    input_tokens: float
    output_tokens: float


class Lost(Exception):
    """A tool lost requests: what it says is of another load than the others'. Now and then GuideLLM 0.8.1 does."""
