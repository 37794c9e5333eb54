"""What a request used, as one record. The ledger (`stores/usage_*.py`) and the access log are made of these.

A record never has text of a prompt or an answer, nor a key.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kilocard.spec.model import ClusterSpec
from kilocard.spec.services import UsageSpec


class Tokens(NamedTuple):
    """What a request is charged."""

    #: all of the prompt, cached or not
    prompt: int
    output: int
    #: of the prompt: what came out of the engine's prefix cache
    cached: int
    #: some of it is our guess, since the engine did not come to say
    estimated: bool


NOTHING: Final = Tokens(0, 0, 0, False)


class Record(NamedTuple):
    """One request that has ended. Times are seconds of the gateway's own clock, which only runs; who writes a record
    down adds the difference to UTC."""

    #: the request is read (of one that was refused at the door: the refusal)
    started: float
    ended: float
    #: ours, unique for ever
    request_id: bytes
    #: what the answer's x-request-id said: the client's own, if it sent a plain one
    client_id: bytes
    #: address and port of the client, if known
    peer: tuple[str, int] | None
    #: "": nobody was asked, or nobody known
    tenant: str
    #: the name in the request, any text that a client can think of
    asked_model: str
    #: one of the cluster file, or metrics.names.OTHER
    model: str
    path: str
    streamed: bool
    #: of the request's body
    bytes_in: int
    #: "": no replica was tried
    pool: str
    replica: str
    #: replicas that it was sent to
    attempts: int
    #: ok, client_error, client_gone, refused, timeout, upstream_error
    outcome: str
    #: of the answer, or of the error event that ended a stream; 0: there was none
    status: int
    #: of our error; "": none
    code: str
    tokens: Tokens
    #: seconds in the gateway's queue
    held: float
    #: when the first content was sent on, for streams; 0: never
    first_at: float


def keeps_ledger(spec: ClusterSpec) -> bool:
    """Does this cluster want a ledger? Where `usage.enabled` says nothing: if there is somebody to charge, or any other
    key of `usage` is set. An open gateway on somebody's desk leaves no such trace unless it is asked to."""
    usage = spec.gateway.usage
    if usage.enabled is not None:
        return usage.enabled
    return bool(spec.tenants) or spec.gateway.oidc is not None or usage != UsageSpec()
