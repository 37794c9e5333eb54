"""One request of a workload: what is asked and when. Arrivals, traces and sessions all come down to these."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WorkloadRequest:
    """Lengths are tokens; times are seconds since the workload's start."""

    #: when it should be sent in an open loop; a later turn of a session is sent at the earliest `think_s` after the
    #: turn before it ended
    at_s: float
    input_tokens: int
    output_tokens: int
    #: requests of one session are sent one after the other; None: on its own
    session: str | None = None
    turn: int = 0
    think_s: float = 0.0
    #: False: the session's requests come at their at_s, side by side perhaps (an agent's); the name is all they share
    waits: bool = True
    #: ids of the input's prefix blocks, `block_tokens` tokens each: equal ids at the same place mean equal text. Empty:
    #: the input shares nothing with anybody's
    blocks: tuple[int, ...] = ()
    block_tokens: int = 0
    #: whose opening it has, where that is known apart from a session: a router's home for it. None: the session's
    conversation: str | None = None
    #: what the client says its answer may have at most; None: nothing
    max_tokens: int | None = None
    tenant: str | None = None
    model: str | None = None
    priority: str | None = None
    #: the client leaves so long after sending
    cancel_after_s: float | None = None
