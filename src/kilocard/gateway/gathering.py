"""What of a response is kept until it is clear that it is the answer, and which one is not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from kilocard.dispatch.events import Fault
from kilocard.wire.not_ready import is_not_ready, lacks_model
from kilocard.wire.relay import EventRelay

if TYPE_CHECKING:
    from kilocard.gateway.heads import ResponseHead

#: a whole response up to this size is gathered before any of it is sent, so that it can still be retried
MAX_GATHERED: Final = 1024 * 1024
#: statuses that another replica may do better on
RETRYABLE: Final = frozenset({429, 500, 502, 503, 504})
#: and those where it depends on what the engine says: a model that is not loaded yet is 400, 404 or 503
_SAYS_WHY: Final = frozenset({400, 404, 503})
#: statuses of answers that are looked at before the client gets them
DOUBTFUL: Final = RETRYABLE | _SAYS_WHY
#: with the status and in words, for logs
Failure = tuple[Fault, int | None, str]
#: how a stream fails that begins with an engine's error event
EARLY_ERROR: Final[Failure] = (Fault.STATUS, 500, "the replica sent an error event before any content")
#: and how any answer fails whose end was the connection's, but not its own
_CUT: Final[Failure] = (Fault.RESET, None, "the replica closed the connection in the middle of its answer")


def unfit(head: ResponseHead, length: int | None, body: bytes) -> Failure | None:
    """Why a whole answer is none that its client should get; None: it is one."""
    fault = declined(head.status, body)
    if fault is not None:
        return fault, head.status, f"the replica answered {head.status}"
    if head.status < 400 and head.until_close(length) and _is_part(head, body):
        return _CUT  # the status of a refusal says enough, so that its words may be few or none
    return None


def unfit_stream(relay: EventRelay) -> Failure | None:
    """The same of a stream, whose client may have got content."""
    if relay.error and not relay.content:
        return EARLY_ERROR
    return _CUT if relay.cut else None


def _is_part(head: ResponseHead, body: bytes) -> bool:
    if head.encoded or not head.content_type.startswith(b"application/json"):
        return False  # nobody knows
    try:
        msgspec.json.decode(body, type=msgspec.Raw)
    except msgspec.DecodeError as error:
        said = str(error)  # NaN and others that JSON does not know, before the end, are no cut
        return "malformed" not in said or said.endswith(f"(byte {len(body)})")
    except RecursionError:
        return False
    return False


def declined(status: int, body: bytes) -> Fault | None:
    """Why this whole answer is no answer, so that another replica is asked; None: it is one."""
    if status in _SAYS_WHY:
        if is_not_ready(body):
            return Fault.NOT_READY
        if status == 404 and lacks_model(body):  # the cluster file has it, so another replica may have it too
            return Fault.STATUS
    return Fault.STATUS if status in RETRYABLE else None
