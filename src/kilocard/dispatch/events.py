"""What the dispatcher is told. Times are monotonic seconds; a request is known by an integer id that is never reused.

NamedTuples because they are immutable and cost 0.3 µs; a request makes three to five of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from kilocard.core.load import LoadSample
from kilocard.core.prefix import Prefix
from kilocard.dispatch.config import PoolFacts
from kilocard.spec.model import ModelSpec


class Fault(Enum):
    """How an attempt on a replica failed. The value is the label in metrics."""

    CONNECT = "connect"  # refused, unreachable, or connect time-out
    NOT_READY = "not_ready"  # the replica answered that its model can't serve yet
    RESET = "reset"  # connection lost before the response was whole
    STATUS = "status"  # the replica answered 5xx
    PROTOCOL = "protocol"  # what came back is not HTTP
    FIRST_TOKEN = "first_token_timeout"
    IDLE = "idle_timeout"  # nothing for too long between two tokens
    TOTAL = "total_timeout"  # the request's own deadline: says little about the replica


#: after these nothing was done for the request, so another try is no more work for anybody; and the next request
#: would fare no better there
UNPROCESSED = frozenset({Fault.CONNECT, Fault.NOT_READY})
#: no token came: an engine whose scheduler is dead answers its health page all the same
HANGS = frozenset({Fault.FIRST_TOKEN, Fault.IDLE})


class Arrived(NamedTuple):
    """A request wants a replica. Answer: Send, Hold or Refuse."""

    now: float
    request: int
    model: str
    prompt_tokens: int  # estimate
    output_tokens: int  # max_tokens, or an estimate
    deadline: float  # when its total time-out ends
    tenant: str = ""
    priority: int = 1  # strict class; a lower one leaves the hold queue first
    weight: float = 1.0  # the tenant's share within its class
    fingerprint: str = ""  # of the body, where its length is in Quarantine.sizes
    stream: bool = True  # the answer comes in pieces
    prefix: Prefix | None = None  # what the prompt begins with, where the model's policy wants to know


class Answered(NamedTuple):
    """The replica's response head is here and will be passed on (its status is no fault)."""

    now: float
    request: int
    status: int


class FirstContent(NamedTuple):
    """The first content byte goes to the client: from here on there is no retry."""

    now: float
    request: int


class Finished(NamedTuple):
    """The response is complete. 4xx from the engine is a finish too: the client's fault, not the replica's."""

    now: float
    request: int
    status: int
    output_tokens: int | None  # None: not known


class Failed(NamedTuple):
    """The attempt failed. Answer: Send (another replica), Hold, or Refuse; after FirstContent always Refuse.

    While a second attempt runs there is no answer but for Fault.TOTAL: the second is the only one then.
    """

    now: float
    request: int
    fault: Fault
    status: int | None  # the HTTP status for Fault.STATUS
    detail: str  # for people
    fingerprint: str = ""  # of the body, where the replica may have died of it


class HedgeWon(NamedTuple):
    """The second attempt has content first, and the first one was cut. What follows is told as if it were the first."""

    now: float
    request: int


class HedgeFailed(NamedTuple):
    """The second attempt failed while the first one goes on."""

    now: float
    request: int
    fault: Fault
    status: int | None
    detail: str
    fingerprint: str = ""


class Abandoned(NamedTuple):
    """The client is gone. Whatever the request holds is given back; no answer, except for Sends to others."""

    now: float
    request: int


class ReplicaUp(NamedTuple):
    """Discovery or the backend says that this replica can serve. Repeating it is harmless."""

    now: float
    replica: str
    pool: str


class ReplicaDraining(NamedTuple):
    """No new requests for it; Drained follows when its last request ends."""

    now: float
    replica: str


class ReplicaGone(NamedTuple):
    """It is no more. Requests still on it end by their own Finished/Failed/Abandoned events."""

    now: float
    replica: str


class Scraped(NamedTuple):
    """A metrics reading, or None where the scrape failed (which must never by itself stop routing to it)."""

    now: float
    replica: str
    sample: LoadSample | None


class PeerLoad(NamedTuple):
    """What the other workers of this gateway have on a replica now, summed; it replaces what was said before."""

    now: float
    replica: str
    in_flight: int
    pending: int  # of these, without a first byte
    prefill_tokens: int
    decode_tokens: int
    context_tokens: int
    share: int | None = None  # of the pool's max_in_flight, what is ours; None: there is no such bound


class PeerEjected(NamedTuple):
    """Another worker of this gateway has ejected a replica."""

    now: float
    replica: str
    cause: str


class PeerConvicted(NamedTuple):
    """Another worker of this gateway refuses this body from now on: replicas died of it."""

    now: float
    fingerprint: str
    model: str
    replicas: tuple[str, ...]
    ttl: float  # seconds from now


class Probed(NamedTuple):
    """The result of a Probe instruction."""

    now: float
    replica: str
    ok: bool


class Tick(NamedTuple):
    """Time passes: sent by the driver about ten times a second. Deadlines and back-offs are checked here."""

    now: float


class Reconfigured(NamedTuple):
    """The cluster file has changed: these are the models and pools now, all of them.

    Requests that run go on where they are. Held ones take the new ways, or end where their model is gone. Replicas of a
    pool that is gone drain.
    """

    now: float
    models: Mapping[str, ModelSpec]
    pools: Mapping[str, PoolFacts]
    scrape_interval: float


Event = (
    Arrived
    | Answered
    | FirstContent
    | Finished
    | Failed
    | HedgeWon
    | HedgeFailed
    | Abandoned
    | ReplicaUp
    | ReplicaDraining
    | ReplicaGone
    | Scraped
    | PeerLoad
    | PeerEjected
    | PeerConvicted
    | Probed
    | Tick
    | Reconfigured
)
