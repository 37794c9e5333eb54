"""What of a response is kept until it is clear that it is the answer, and which one is not."""

from __future__ import annotations

from typing import Final

from kilocard.dispatch.events import Fault
from kilocard.wire.not_ready import is_not_ready, lacks_model

#: a whole response up to this size is gathered before any of it is sent, so that it can still be retried
MAX_GATHERED: Final = 1024 * 1024
#: statuses that another replica may do better on
RETRYABLE: Final = frozenset({429, 500, 502, 503, 504})
#: and those where it depends on what the engine says: a model that is not loaded yet is 400, 404 or 503
_SAYS_WHY: Final = frozenset({400, 404, 503})
#: statuses of answers that are looked at before the client gets them
DOUBTFUL: Final = RETRYABLE | _SAYS_WHY
#: how a stream fails that begins with an engine's error event
EARLY_ERROR: Final = (Fault.STATUS, 500, "the replica sent an error event before any content")


def declined(status: int, body: bytes) -> Fault | None:
    """Why this whole answer is no answer, so that another replica is asked; None: it is one."""
    if status in _SAYS_WHY:
        if is_not_ready(body):
            return Fault.NOT_READY
        if status == 404 and lacks_model(body):  # the cluster file has it, so another replica may have it too
            return Fault.STATUS
    return Fault.STATUS if status in RETRYABLE else None
