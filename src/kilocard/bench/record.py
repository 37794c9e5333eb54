"""One request as the load tester saw it. Everything that is reported comes from a list of these."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

from kilocard.core import latency

#: the `error` of a request that still ran when the measurement ended: no fault of the server, but no answer either
CUT_OFF = "cut off at the end"


@dataclass(slots=True)
class RequestRecord:
    """Times are seconds since the run's start on a monotonic clock; lengths are tokens.

    A record without `error` is complete: it has first_s, last_s and done_s.
    """

    #: when it should have been sent: its arrival in an open loop, the moment a slot freed in a closed one
    intended_s: float
    #: when its last byte was handed to the kernel
    sent_s: float
    asked_input: int
    asked_output: int
    #: first and last arrival that carried content, reasoning or a tool call
    first_s: float | None = None
    last_s: float | None = None
    #: end of the response, `[DONE]` included
    done_s: float | None = None
    #: by the server's `usage`; None where it sent none
    input_tokens: int | None = None
    output_tokens: int | None = None
    #: prompt tokens found in the prefix cache, where the server says so
    cached_tokens: int | None = None
    #: gaps between arrivals that carried tokens: one fewer than arrivals
    gaps_s: array[float] = field(default_factory=lambda: array("d"))
    #: share of the text that came in the last arrival, by characters, 0 to 1: a server that holds text back shows here
    last_share: float = 0.0
    #: what came first: "content", "reasoning" or "tool_calls"
    first_kind: str | None = None
    finish_reason: str | None = None
    status: int = 0
    #: what went wrong, in the words of the report: "refused: 429", "reset before the first byte", …
    error: str | None = None
    session: str | None = None
    turn: int = 0

    @property
    def ttft_s(self) -> float | None:
        return None if self.first_s is None else self.first_s - self.intended_s

    @property
    def e2e_s(self) -> float | None:
        return None if self.last_s is None else self.last_s - self.intended_s

    @property
    def tpot_s(self) -> float | None:
        ttft, e2e, tokens = self.ttft_s, self.e2e_s, self.output_tokens
        return None if ttft is None or e2e is None or tokens is None else latency.tpot_s(ttft, e2e, tokens)
