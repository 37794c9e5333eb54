"""Ask one replica whether it can serve."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol

from kilocard.backends.life_events import Health
from kilocard.core.errors import UpstreamError, UpstreamTimeout
from kilocard.engines.model_list import MODELS_PATH, missing_models

#: seconds; only says "busy" when it passes, so it may be short
PROBE_TIMEOUT = 5.0
MAX_BYTES = 4 * 1024 * 1024


class Answer(Protocol):
    @property
    def status(self) -> int: ...
    @property
    def body(self) -> bytes: ...


#: GET a URL within so many seconds; raises UpstreamTimeout when nothing came, other UpstreamErrors for the rest
Get = Callable[[str, float], Awaitable[Answer]]


async def probe(get: Get, url: str, path: str, wanted: Iterable[str] = ()) -> tuple[Health, str]:
    """Health and, unless it is READY, what was seen.

    `wanted`: names that the engine's model list must have, where it keeps one: some engines answer their health
    page before the model or its adapters can serve. An answer that is no list (404, an error) is passed over.
    """
    try:
        answer = await get(url + path, PROBE_TIMEOUT)
    except UpstreamTimeout:
        return Health.SLOW, f"no answer from {path} within {PROBE_TIMEOUT:g} s"
    except UpstreamError as error:
        health = Health.NO_ANSWER if error.code == "connect_failed" else Health.NOT_READY
        return health, str(error)
    if answer.status != 200:
        return Health.NOT_READY, f"{path} answers {answer.status}{_saying(answer.body)}"
    names = set(wanted)
    if not names:
        return Health.READY, ""
    if path != MODELS_PATH:
        try:
            answer = await get(url + MODELS_PATH, PROBE_TIMEOUT)
        except UpstreamTimeout:
            return Health.SLOW, f"no answer from {MODELS_PATH} within {PROBE_TIMEOUT:g} s"
        except UpstreamError as error:
            return Health.NOT_READY, str(error)
    missing = missing_models(names, answer.status, answer.body)
    return (Health.NOT_READY, missing) if missing else (Health.READY, "")


def _saying(body: bytes) -> str:
    """What an error answer says, short: {"error": {"message": …}}, or its text."""
    try:
        page: Any = json.loads(body)
        error = page.get("error", page)
        text = error.get("message") if isinstance(error, dict) else error
    except (ValueError, AttributeError):
        text = body.decode("utf-8", "replace")
    words = " ".join(str(text or "").split())[:120]
    return f": {words}" if words else ""
