"""A request that needed no replica: refused at the door, or answered by the gateway itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kilocard.core.errors import KilocardError
from kilocard.gateway.outcome import outcome

if TYPE_CHECKING:
    from kilocard.gateway.arrival import Arrival
    from kilocard.gateway.downstream import ClientConnection
    from kilocard.gateway.plane import Plane
    from kilocard.gateway.request import Inbound


class LocalAnswer(NamedTuple):
    """What is known of it once its answer is written."""

    client: ClientConnection
    #: None: what came was not a whole request
    arrival: Arrival | None
    status: int
    outcome: str = "ok"
    #: of the error; "": it is none
    error_code: str = ""
    #: None: it was not read that far
    inbound: Inbound | None = None
    #: whose key it had; "": nobody's
    tenant: str = ""


def turned_away(
    plane: Plane,
    client: ClientConnection,
    error: KilocardError,
    arrival: Arrival | None = None,
    inbound: Inbound | None = None,
    tenant: str = "",
) -> None:
    """Count and tell of a refusal whose answer is written."""
    plane.telemetry.bad_request(error)
    if plane.on_answer:
        answered(plane, LocalAnswer(client, arrival, error.http_status, outcome(error), error.code, inbound, tenant))


def answered(plane: Plane, answer: LocalAnswer) -> None:
    """Tell of an answer of our own that is written."""
    now = plane.clock()
    for tell in plane.on_answer:
        tell(answer, now)
