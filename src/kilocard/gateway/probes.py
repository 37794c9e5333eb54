"""Does an ejected replica serve again, does one that failed still live? Asked when the dispatcher wants to know."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kilocard.core.errors import UpstreamError
from kilocard.dispatch.events import Probed
from kilocard.dispatch.instructions import Probe
from kilocard.net.client import fetch

if TYPE_CHECKING:
    from kilocard.gateway.plane import Plane

#: seconds for an answer
TIMEOUT = 5.0


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

    async def _probe(self, replica: str, liveness: bool) -> None:
        plane = self._plane
        target = plane.targets.get(replica)
        ok = False
        if target is not None:
            try:
                page = target.liveness_path if liveness else target.readiness_path
                answer = await fetch(target.endpoint.url + page, timeout=TIMEOUT)
                ok = answer.status == 200 or (liveness and answer.status < 500)
            except UpstreamError:
                ok = False
        plane.tell(Probed(plane.clock(), replica, ok))
