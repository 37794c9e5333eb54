"""TTFT, TPOT, ITL and end-to-end, defined once. Load tester, planner, simulator and gateway all mean these.

    end-to-end  e2e  = last token − start
    TTFT             = first token − start
    TPOT             = (e2e − TTFT) / (n − 1)       n: output tokens by the engine's own count, n ≥ 2
    ITL              = each gap between two arrivals of tokens (an arrival may carry several tokens)

Start is when the request should have been sent: with an open loop the intended time, so that a load tester that is held
up by a stalled server counts the wait (no coordinated omission). A token is an arrival that carries content, reasoning
or a tool call; empty deltas and role markers are none. `vllm bench` has the same TPOT; GuideLLM divides e2e by n.
"""

from __future__ import annotations

#: |TTFT + TPOT × (n − 1) − e2e| may be this share of e2e, else the three do not belong together and are not printed
AGREEMENT = 0.05


def tpot_s(ttft_s: float, e2e_s: float, output_tokens: int) -> float | None:
    """Seconds a token after the first; None for fewer than two tokens."""
    return (e2e_s - ttft_s) / (output_tokens - 1) if output_tokens >= 2 else None


def agree(ttft_s: float, tpot_s: float, e2e_s: float, output_tokens: int) -> bool:
    """Do three means (or one request's three numbers) describe the same requests?"""
    return abs(ttft_s + tpot_s * (output_tokens - 1) - e2e_s) <= AGREEMENT * e2e_s
