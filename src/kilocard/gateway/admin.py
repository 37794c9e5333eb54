"""The admin listener: health, metrics, the fleet's state. Apart from the data listener, so that load can't starve it
of connections and a network policy can keep clients away from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from kilocard.core.errors import MethodNotAllowed, NotFound
from kilocard.gateway.admin_guard import only_from_here
from kilocard.gateway.plane import Plane
from kilocard.gateway.state import state
from kilocard.metrics.render import CONTENT_TYPE
from kilocard.net.server import Answer, Reply, Request

_JSON = "application/json"


class Admin:
    """Handler for net.server.Server. `describe` gives what a backend knows of its replicas, by id."""

    def __init__(self, plane: Plane, describe: Callable[[], dict[str, dict[str, Any]]] = dict) -> None:
        self._plane = plane
        self._describe = describe

    async def __call__(self, request: Request, reply: Reply) -> Answer:
        plane = self._plane
        if request.method not in ("GET", "HEAD"):
            only_from_here(reply.peer, request.headers)
            raise MethodNotAllowed("The admin address only answers GET.")
        if request.path == "/healthz":
            return Answer(200, _JSON, '{"status":"ok"}')
        if request.path == "/readyz":
            return Answer(200 if plane.ready else 503, _JSON, msgspec.json.encode({"ready": plane.ready}))
        if request.path == "/metrics":
            return Answer(200, CONTENT_TYPE, plane.telemetry.registry.render())
        if request.path == "/state":
            body = msgspec.json.encode(state(plane, plane.clock(), self._describe()))
            return Answer(200, _JSON, body)
        raise NotFound("The admin address has /healthz, /readyz, /metrics and /state.", code="unknown_path")
