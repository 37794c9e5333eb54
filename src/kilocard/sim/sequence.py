"""One request inside the engine model."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kilocard.sim.prefix_pool import Cached


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
        "finish",
        "keys",
        "named",
        "offset",
        "order",
        "output",
        "own",
        "place",
        "preempted",
        "priority",
        "prompt",
        "ready",
        "request_id",
        "running",
        "unreported",
    )

    def __init__(
        self,
        request_id: str,
        prompt: int,
        output: int,
        cached: int,
        arrived_at: float,
        order: int,
        priority: int = 0,
        keys: tuple[int, ...] = (),
    ) -> None:
        self.request_id = request_id
        self.prompt = prompt
        self.output = output
        #: prompt tokens that the prefix cache spares us to compute
        self.cached = cached
        self.arrived_at = arrived_at
        #: number of its arrival
        self.order = order
        #: number of the first step that can have it
        self.ready = 0
        #: lower goes first (policy "priority")
        self.priority = priority
        #: the prompt's blocks that others may share, first to last: equal keys are equal text up to the block's end
        self.keys = keys
        #: what of them it holds in the cache
        self.named: list[Cached] = []
        #: its own blocks that nobody else can want, when it was preempted: still cached until others need the room
        self.own: Cached | None = None
        #: time of the first admission
        self.admitted_at: float | None = None
        self.computed = 0
        self.emitted = 0
        self.blocks = 0
        self.running = False
        #: number of its last admission: the order of the running requests
        self.place = 0
        #: its last token is out; it leaves when the step is over
        self.done = False
        #: how often it was preempted, and how many of those no output has reported yet
        self.preempted = 0
        self.unreported = 0
        #: while it decodes in the fast engine: what its count of tokens lags the engine's count of steps by, and the
        #: count of steps at its last token. -1: its own counts are true
        self.offset = 0
        self.finish = -1

    @property
    def tokens(self) -> int:
        """Prompt and output so far."""
        return self.prompt + self.emitted
