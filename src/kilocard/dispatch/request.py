"""A request that the dispatcher has not yet seen the end of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kilocard.dispatch.events import Fault

if TYPE_CHECKING:
    from kilocard.dispatch.events import Arrived
    from kilocard.dispatch.replica import Replica
    from kilocard.dispatch.suspicion import Mark
    from kilocard.dispatch.topology import Model, Route
    from kilocard.dispatch.turns import Bill


class Second:
    """The second attempt's lease."""

    __slots__ = ("replica", "sent_at")

    def __init__(self, replica: Replica, sent_at: float) -> None:
        self.replica = replica
        self.sent_at = sent_at


class LiveRequest:
    """`replica` is the lease: the very object, not its id, so a replica that goes and comes back is another one."""

    __slots__ = (
        "ahead", "asked", "attempts", "bills", "content_at", "declared", "fault", "hedge", "held_at", "hold_until",
        "id", "mark", "marked_at", "model", "not_before", "output", "pending", "prompt", "replica", "route", "sent_at",
        "spent", "trial", "tried", "work", "worked",
    )  # fmt: skip

    #: set by the first hold: what its tenant, and its size within the tenant, was charged for it (fair.py)
    bills: tuple[Bill, Bill] | None

    def __init__(self, id: int, model: Model, route: Route, prompt: int, output: int, declared: int, asked: Arrived):
        self.id = id
        self.model = model
        #: the pool that the weights chose
        self.route = route
        self.prompt = prompt
        #: tokens of the prompt that the replica has to compute, and tokens that come before its first one; 0: not known
        self.work = prompt
        self.ahead = 0
        #: tokens expected / asked for
        self.output = output
        self.declared = declared
        #: the event itself: who asks, and until when
        self.asked = asked
        #: where it is now; None: held
        self.replica: Replica | None = None
        #: without a first content byte on the present attempt
        self.pending = True
        self.content_at = 0.0
        self.trial = False
        self.sent_at = 0.0
        #: sends in all
        self.attempts = 0
        #: failed attempts that count against retry.attempts
        self.spent = 0
        #: replicas on which it failed
        self.tried: tuple[str, ...] = ()
        #: those of them that reached a replica
        self.worked = 0
        #: its body is, or was, suspected of killing replicas
        self.mark: Mark | None = None
        self.marked_at = 0.0
        #: a second attempt that runs beside the first
        self.hedge: Second | None = None
        #: why it is held again
        self.fault: Fault | None = None
        self.held_at = 0.0
        #: set at the first hold, kept over later ones; 0: never held
        self.hold_until = 0.0
        self.not_before = 0.0

    @property
    def deadline(self) -> float:
        return self.asked.deadline
