"""What has been asked of the store and what it was told, each until its answer comes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kilocard.stores.redis_link import Waiting
from kilocard.stores.redis_scripts import Form
from kilocard.stores.resp import Reply
from kilocard.tenancy.ledger import Lease
from kilocard.tenancy.limits import Ask, Done

if TYPE_CHECKING:
    from kilocard.stores.redis_limits import RedisLimits

GRANTED, DENIED = b"G"[0], b"D"[0]


class Reserve(Waiting):
    """May a request come in? Should no answer come, that is decided here."""

    __slots__ = ("ask", "done", "form", "id", "limits", "tokens")

    def __init__(
        self, command: bytes, until: float, limits: RedisLimits, id: int, ask: Ask, form: Form, tokens: int, done: Done
    ) -> None:
        self.command = command
        self.until = until
        self.limits = limits
        self.id = id
        self.ask = ask
        self.form = form
        self.tokens = tokens
        self.done = done

    def answered(self, reply: Reply) -> None:
        limits = self.limits
        if type(reply) is bytes and reply[0] in (GRANTED, DENIED):
            limits.decided(self, reply)
        elif limits.refused(self, reply):
            limits.decide(self.id, self.ask, self.form, self.done)

    def lost(self, reason: str) -> None:
        self.limits.doubt(self.form)
        self.limits.decide(self.id, self.ask, self.form, self.done)


class Tell(Waiting):
    """Something happened here that the store has to know. Should it not arrive, the ledger has it."""

    __slots__ = ("form", "limits")

    def __init__(self, command: bytes, until: float, limits: RedisLimits, form: Form) -> None:
        self.command = command
        self.until = until
        self.limits = limits
        self.form = form

    def answered(self, reply: Reply) -> None:
        if type(reply) is not bytes or reply == b"J":
            self.limits.refused(self, reply)

    def lost(self, reason: str) -> None:
        self.limits.doubt(self.form)


class Settle(Tell):
    """A request has ended and used `spent` tokens."""

    __slots__ = ("lease", "spent")

    def __init__(self, command: bytes, until: float, limits: RedisLimits, lease: Lease[Form], spent: int) -> None:
        super().__init__(command, until, limits, lease.terms)
        self.lease = lease
        self.spent = spent

    def answered(self, reply: Reply) -> None:
        if reply == b"S":
            self.limits.ledger.confirmed(self.lease, self.spent)
        else:
            super().answered(reply)


class Charge(Tell):
    """A request was let in here."""

    __slots__ = ("id",)

    def __init__(self, command: bytes, until: float, limits: RedisLimits, form: Form, id: int) -> None:
        super().__init__(command, until, limits, form)
        self.id = id

    def answered(self, reply: Reply) -> None:
        if type(reply) is bytes and reply[0] == GRANTED:
            self.limits.ledger.redate(self.id, int(reply.split(b" ", 2)[1]))
        else:
            super().answered(reply)
