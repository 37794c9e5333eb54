"""One request inside the engine model."""

from __future__ import annotations


class Sequence:
    """Counts in tokens. `computed` is what stands in the KV cache; prompt and output so far must be computed before
    the next token comes out, which after a preemption means both again."""

    __slots__ = (
        "admitted_at",
        "arrived_at",
        "blocks",
        "cached",
        "computed",
        "done",
        "emitted",
        "output",
        "preempted",
        "prompt",
        "request_id",
        "running",
        "unreported",
    )

    def __init__(self, request_id: str, prompt: int, output: int, cached: int, arrived_at: float) -> None:
        self.request_id = request_id
        self.prompt = prompt
        self.output = output
        #: prompt tokens that the prefix cache spares us to compute
        self.cached = cached
        self.arrived_at = arrived_at
        #: time of the first admission
        self.admitted_at: float | None = None
        self.computed = 0
        self.emitted = 0
        self.blocks = 0
        self.running = False
        #: its last token is out; it leaves when the step is over
        self.done = False
        #: how often it was preempted, and how many of those no output has reported yet
        self.preempted = 0
        self.unreported = 0

    @property
    def tokens(self) -> int:
        """Prompt and output so far."""
        return self.prompt + self.emitted
