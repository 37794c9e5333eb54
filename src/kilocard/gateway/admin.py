"""The admin listener: health, metrics, the fleet's state. Apart from the data listener, so that load can't starve it
of connections and a network policy can keep clients away from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from kilocard.core.errors import MethodNotAllowed, NotFound
from kilocard.gateway.admin_guard import only_from_here
from kilocard.gateway.plane import Plane
from kilocard.gateway.state import state
from kilocard.metrics.render import CONTENT_TYPE
from kilocard.net.server import Answer, Reply, Request

_JSON = "application/json"


class Overview(Protocol):
    """What is behind the pages: one gateway, or a supervisor with several."""

    @property
    def ready(self) -> bool: ...

    async def metrics(self) -> bytes: ...

    async def state(self) -> dict[str, Any]: ...


class OneGateway:
    """`describe` gives what a backend knows of its replicas, by id."""

    def __init__(self, plane: Plane, describe: Callable[[], dict[str, dict[str, Any]]] = dict) -> None:
        self._plane = plane
        self._describe = describe

    @property
    def ready(self) -> bool:
        return self._plane.ready

    async def metrics(self) -> bytes:
        return self._plane.telemetry.registry.render()

    async def state(self) -> dict[str, Any]:
        return state(self._plane, self._plane.clock(), self._describe())


class Admin:
    """Handler for net.server.Server."""

    def __init__(self, overview: Overview) -> None:
        self._overview = overview

    async def __call__(self, request: Request, reply: Reply) -> Answer:
        overview = self._overview
        if request.method not in ("GET", "HEAD"):
            only_from_here(reply.peer, request.headers)
            raise MethodNotAllowed("The admin address only answers GET.")
        if request.path == "/healthz":
            return Answer(200, _JSON, '{"status":"ok"}')
        if request.path == "/readyz":
            return Answer(200 if overview.ready else 503, _JSON, msgspec.json.encode({"ready": overview.ready}))
        if request.path == "/metrics":
            return Answer(200, CONTENT_TYPE, await overview.metrics())
        if request.path == "/state":
            return Answer(200, _JSON, msgspec.json.encode(await overview.state()))
        raise NotFound("The admin address has /healthz, /readyz, /metrics and /state.", code="unknown_path")
