"""What the gateway does for the quarantine: fingerprints where they are needed, and a line in the log."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kilocard.dispatch.events import Fault
from kilocard.dispatch.suspicion import short
from kilocard.wire.fingerprint import fingerprint

if TYPE_CHECKING:
    from kilocard.dispatch.instructions import Convicted, Send
    from kilocard.gateway.exchange import Exchange
    from kilocard.gateway.plane import Plane

log = logging.getLogger("kilocard.gateway")


def suspected(exchange: Exchange, fault: Fault, status: int | None, send: Send | None) -> str:
    """The body's fingerprint where the replica may have died of it, else "". `send`: the attempt that failed.

    A refused connection is no work, unless an earlier connection was lost with this very attempt on it.
    """
    if fault is Fault.CONNECT:
        lost = send is not None and exchange.stale_send is send
    else:
        lost = fault is Fault.RESET or (fault is Fault.STATUS and status is not None and status >= 500)
    return fingerprint(exchange.inbound.model, exchange.inbound.body) if lost else ""


def say_convicted(plane: Plane, convicted: Convicted) -> None:
    exchange = plane.exchanges.get(convicted.request)
    log.error(
        "quarantine: replicas %s of model %s died with one and the same request body on them (%s, request %s, "
        "tenant %s); it is refused for %g s",
        ", ".join(convicted.replicas),
        convicted.model,
        short(convicted.fingerprint),
        "that has ended" if exchange is None else exchange.request_id.decode(),
        "not known any more" if exchange is None else exchange.inbound.tenant.name or "-",
        convicted.ttl,
    )
