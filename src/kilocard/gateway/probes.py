"""Does an ejected replica serve again, does one that failed still live? Asked when the dispatcher wants to know."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from kilocard.core.errors import UpstreamError
from kilocard.dispatch.events import Probed
from kilocard.dispatch.instructions import Probe
from kilocard.net.client import fetch

if TYPE_CHECKING:
    from kilocard.gateway.plane import Plane
    from kilocard.gateway.target import Target

_JSON = (("content-type", "application/json"),)

#: seconds for a page, and for a token after it; together less than what the dispatcher waits (PROBE_TIMEOUT)
TIMEOUT = 5.0
TOKEN_TIMEOUT = 4.5


class Probes:
    def __init__(self, plane: Plane) -> None:
        self._plane = plane
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, probe: Probe) -> None:
        """The plane is told Probed, later."""
        task = asyncio.get_running_loop().create_task(self._probe(*probe))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _probe(self, replica: str, liveness: bool, token: bool) -> None:
        plane = self._plane
        target = plane.targets.get(replica)
        ok = False
        if target is not None:
            try:
                page = target.liveness_path if liveness else target.readiness_path
                answer = await fetch(target.endpoint.url + page, timeout=TIMEOUT)
                ok = answer.status == 200 or (liveness and answer.status < 500)
                if ok and token:
                    ok = await _makes_a_token(target)
            except UpstreamError:
                ok = False
        plane.tell(Probed(plane.clock(), replica, ok))


async def _makes_a_token(target: Target) -> bool:
    """The shortest completion there is. Engines without that route, or whose model completes nothing, say so: alive."""
    body = json.dumps({"model": target.probe_model, "prompt": "1", "max_tokens": 1}).encode()
    url = target.endpoint.url + "/v1/completions"
    answer = await fetch(url, method="POST", headers=_JSON, body=body, timeout=TOKEN_TIMEOUT)
    return answer.status < 500
