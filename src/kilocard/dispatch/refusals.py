"""The errors that end a request here."""

from __future__ import annotations

from collections.abc import Iterable

from kilocard.core.errors import (
    MODEL_NOT_ALLOWED,
    CapacityError,
    Forbidden,
    KilocardError,
    NotFound,
    PoisonRequest,
    UpstreamError,
    UpstreamTimeout,
)
from kilocard.dispatch.config import RETRY_AFTER
from kilocard.dispatch.events import Fault
from kilocard.dispatch.suspicion import Conviction

TIMEOUTS = frozenset({Fault.FIRST_TOKEN, Fault.IDLE, Fault.TOTAL})

WORDS = {
    Fault.CONNECT: "could not be reached",
    Fault.NOT_READY: "is still loading its model",
    Fault.RESET: "closed the connection before its response was whole",
    Fault.STATUS: "answered with an error",
    Fault.PROTOCOL: "did not answer in HTTP",
    Fault.FIRST_TOKEN: "did not begin its answer in time",
    Fault.IDLE: "stopped in the middle of its answer",
    Fault.TOTAL: "did not finish before the request's deadline",
}

#: names of models that an error message lists at most
NAMES = 10


def unknown_model(name: str, known: Iterable[str]) -> KilocardError:
    names = sorted(known)
    some = ", ".join(names[:NAMES]) + (", …" if len(names) > NAMES else "")
    return NotFound(f"there is no model {name[:200]!r}; there is: {some}", code="model_not_found", param="model")


def closed() -> KilocardError:
    """All pools of the model belong to other tenants."""
    return Forbidden(MODEL_NOT_ALLOWED, param="model")


def without_weight(model: str) -> KilocardError:
    """There are pools for the request, and none takes any."""
    message = f"model {model}: every pool that this request may go to has weight 0"
    return CapacityError(message, code="no_replica", retry_after=RETRY_AFTER["no_replica"])


def no_capacity(code: str, model: str, seconds: float, held: int) -> KilocardError:
    """`code`: hold_full, hold_timeout, deadline_exceeded or no_replica."""
    match code:
        case "hold_full":
            first = ", and 1 waits that goes first" if held == 1 else f", and {held} wait that go first" if held else ""
            message = f"model {model}: every replica is busy{first}; try again later"
        case "no_replica":
            message = f"model {model}: no replica is running, and none came up within {seconds:.3g} s"
        case "deadline_exceeded":
            message = f"model {model}: every replica was busy for {seconds:.3g} s, until the request's own deadline"
        case _:
            message = f"model {model}: every replica was busy for {seconds:.3g} s; try again later"
    return CapacityError(message, code=code, retry_after=RETRY_AFTER[code])


def poison(conviction: Conviction, now: float) -> KilocardError:
    left = max(1.0, conviction.until - now)
    count = len(conviction.replicas)
    message = (
        f"{count} replica{'s' if count > 1 else ''} of model {conviction.model} died while working on this very "
        f"request, so it is not sent to another one for the next {left:.0f} s. Change the request, or report it to "
        f"whoever runs the engines as {conviction.short}"
    )
    return PoisonRequest(message, retry_after=left)


def upstream(fault: Fault, detail: str, attempts: int) -> KilocardError:
    """502, 504 for a time-out, 503 for a model that is still loading; the code is the fault's own name.

    Replica addresses stay inside.
    """
    tries = "" if attempts <= 1 else f" ({attempts} attempts)"
    message = f"the replica {WORDS[fault]}{tries}"
    if fault is Fault.NOT_READY:
        return CapacityError(message, code=fault.value, retry_after=RETRY_AFTER[fault.value])
    error = UpstreamTimeout if fault in TIMEOUTS else UpstreamError
    result = error(message, code=fault.value)
    if detail:
        result.add_note(detail)  # for logs; clients never see where replicas live
    return result
