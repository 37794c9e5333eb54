"""The controller's own pages, where it runs in a process of its own: /healthz, /metrics, /scaling."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from kilocard.controller.view import view
from kilocard.core.errors import MethodNotAllowed, NotFound
from kilocard.metrics.render import CONTENT_TYPE, Registry
from kilocard.net.server import Answer, Reply, Request

if TYPE_CHECKING:
    from kilocard.controller.controller import Controller

_JSON = "application/json"


class Pages:
    """Handler for net.server.Server. `controller` gives None while this process has nothing to do but to stand by."""

    def __init__(self, controller: Callable[[], Controller | None], registry: Registry) -> None:
        self._controller = controller
        self._registry = registry

    async def __call__(self, request: Request, reply: Reply) -> Answer:
        if request.method not in ("GET", "HEAD"):
            raise MethodNotAllowed("The controller's address only answers GET.")
        controller = self._controller()
        match request.path:
            case "/healthz":
                return Answer(200, _JSON, '{"status":"ok"}')
            case "/metrics":
                return Answer(200, CONTENT_TYPE, self._registry.render())
            case "/scaling" if controller is not None:
                return Answer(200, _JSON, msgspec.json.encode(view(controller)))
            case "/scaling":
                raise NotFound("Another controller leads, and this one stands by.", code="no_controller")
        raise NotFound("The controller's address has /healthz, /metrics and /scaling.", code="unknown_path")
