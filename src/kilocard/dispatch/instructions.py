"""What the dispatcher wants done. The driver performs them in order."""

from __future__ import annotations

from typing import NamedTuple

from kilocard.core.decision import Decision
from kilocard.core.errors import KilocardError


class Send(NamedTuple):
    """Send the request to this replica. `attempt` starts at 1."""

    request: int
    attempt: int
    replica: str
    pool: str
    decision: Decision


class Hedge(NamedTuple):
    """Send the request to this replica too, beside the attempt that runs. Cut whichever does not have content first."""

    request: int
    attempt: int
    replica: str
    pool: str
    decision: Decision


class Hold(NamedTuple):
    """The request waits in the gateway; a Send or a Refuse follows in answer to a later event."""

    request: int
    reason: str


class Refuse(NamedTuple):
    """The request ends here with this error. The dispatcher has already forgotten it."""

    request: int
    error: KilocardError


class Probe(NamedTuple):
    """Ask this replica, which is ejected or has just failed, whether it serves; report with Probed."""

    replica: str
    #: ask only whether it lives
    liveness: bool = False
    #: ask for one token too: it is out because none came, and a health page says nothing about that
    token: bool = False


class Drained(NamedTuple):
    """The draining replica has no request left: it may be stopped."""

    replica: str


class Convicted(NamedTuple):
    """Replicas died of this body: it is refused for `ttl` seconds. Worth a line in the log."""

    request: int
    fingerprint: str
    model: str
    replicas: tuple[str, ...]
    ttl: float


Instruction = Send | Hedge | Hold | Refuse | Probe | Drained | Convicted
