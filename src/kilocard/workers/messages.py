"""What supervisor and workers say to each other. Both run the same version: nothing here is a promise to others.

Messages travel in batches, each batch a MessagePack array of arrays `[tag, field, …]`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from kilocard.core.load import LoadSample
from kilocard.tenancy.limits import Standing
from kilocard.workers.loads import Others, Row


class Message(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """One message; its tag is the name of the class."""


# --- from the supervisor


class Welcome(Message, frozen=True, tag=True):
    """The first message: who the worker is, and what it serves."""

    worker: int
    #: the cluster file, as spec.dump writes it
    spec: dict[str, Any]
    #: descriptors of the listening sockets, which it has inherited
    sockets: list[int]
    #: how many workers there are
    count: int


class Found(Message, frozen=True, tag=True):
    replica: str
    pool: str
    url: str


class Leaving(Message, frozen=True, tag=True):
    replica: str
    reason: str


class Lost(Message, frozen=True, tag=True):
    replica: str
    reason: str


class Sampled(Message, frozen=True, tag=True):
    """A replica's metrics page has been read."""

    replica: str
    sample: LoadSample


class News(Message, frozen=True, tag=True):
    """What has changed in the other workers' loads; `number` is said back in the next Report."""

    number: int
    rows: list[Others]


class Ask(Message, frozen=True, tag=True):
    """The worker answers with Told and the same number."""

    number: int
    #: "state", "metrics" or "signals"
    what: str


class Reload(Message, frozen=True, tag=True):
    """Another cluster file is in force. Answered with Told; the supervisor has judged it before."""

    number: int
    spec: dict[str, Any]


class Granted(Message, frozen=True, tag=True):
    """The answer to Reserve with the same number: the lease is held for this worker until it says Settle."""

    number: int
    tokens: int
    requests_left: Standing | None
    tokens_left: Standing | None


class Denied(Message, frozen=True, tag=True):
    number: int
    code: str
    message: str
    retry_after: float | None
    requests_left: Standing | None
    tokens_left: Standing | None


class Drain(Message, frozen=True, tag=True):
    """Stop as a gateway does on SIGTERM, then exit."""


# --- from a worker


class Listening(Message, frozen=True, tag=True):
    """It serves."""


class Retiring(Message, frozen=True, tag=True):
    """Somebody has sent it SIGTERM: it drains and ends, and wants a successor."""


class Report(Message, frozen=True, tag=True):
    """Rows that have changed. Sent at least once a second: a worker that says nothing is taken for hung."""

    #: number of the last News that it has read
    read: int
    rows: list[Row]
    #: some replica can serve, by this worker's view
    ready: bool


class Reserve(Message, frozen=True, tag=True):
    """As tenancy.limits.Ask; the supervisor knows the limits themselves."""

    number: int
    #: tenant and model of each scope
    scopes: list[tuple[str, str]]
    prompt_tokens: int
    output_tokens: int
    bounded: bool
    wall: float
    lasts: float


class Settle(Message, frozen=True, tag=True):
    """`number` of a Reserve that was granted, or will be."""

    number: int
    tokens: int | None


class Counts(Message, frozen=True, tag=True):
    """Its counters and histograms, now and then: what stays of it when it dies."""

    families: msgspec.Raw


class Told(Message, frozen=True, tag=True):
    number: int
    data: msgspec.Raw


class Drained(Message, frozen=True, tag=True):
    """A draining replica has no request of this worker left."""

    replica: str


# --- both ways


class Ejected(Message, frozen=True, tag=True):
    """This worker (or, from the supervisor: another one) has taken the replica out."""

    replica: str
    cause: str


class Convicted(Message, frozen=True, tag=True):
    """This worker (or another one) refuses a body from now on."""

    fingerprint: str
    model: str
    replicas: list[str]
    #: seconds from now
    ttl: float


Down = Welcome | Found | Leaving | Lost | Sampled | News | Ask | Reload | Granted | Denied | Drain | Ejected | Convicted
Up = Listening | Retiring | Report | Reserve | Settle | Counts | Told | Drained | Ejected | Convicted
