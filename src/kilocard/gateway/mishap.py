"""A fault of the gateway itself while it did what the dispatcher wants: it costs one request, and is seen."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kilocard.dispatch.instructions import Instruction
    from kilocard.gateway.plane import Plane

log = logging.getLogger("kilocard.gateway")


def contain(plane: Plane, instruction: Instruction) -> None:
    """Inside an except block. The client of the instruction's request is cut, which gives back all that it held."""
    plane.telemetry.internal_errors.value += 1
    log.exception("a fault of the gateway itself, in %s: please report it", type(instruction).__name__)
    exchange = plane.exchanges.get(getattr(instruction, "request", -1))
    if exchange is not None:
        exchange.client.abort()
