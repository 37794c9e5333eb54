"""The admin listener: health, metrics, the fleet's state. Apart from the data listener, so that load can't starve it
of connections and a network policy can keep clients away from it."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Protocol

import msgspec

from kilocard.core.errors import ClientError, MethodNotAllowed, NotFound, SpecError
from kilocard.core.reading import GatewayReading
from kilocard.core.roll import Roll
from kilocard.gateway.admin_guard import only_from_here
from kilocard.gateway.plane import Plane
from kilocard.gateway.reloader import Reloader
from kilocard.gateway.scrape_targets import scrape_targets
from kilocard.gateway.signals import signals
from kilocard.gateway.state import state
from kilocard.gateway.told import Told
from kilocard.metrics.render import CONTENT_TYPE
from kilocard.net.server import Answer, Reply, Request
from kilocard.spec.endpoint import endpoint
from kilocard.spec.model import ClusterSpec
from kilocard.spec.problems import path_text
from kilocard.spec.units import UnitError

_JSON = "application/json"
_decode_roll = msgspec.json.Decoder(Roll).decode


class Overview(Protocol):
    """What is behind the pages: one gateway, or a supervisor with several."""

    @property
    def ready(self) -> bool: ...

    @property
    def spec(self) -> ClusterSpec:
        """The cluster that is in force."""

    async def metrics(self) -> bytes: ...

    async def state(self) -> dict[str, Any]: ...

    async def signals(self) -> GatewayReading: ...

    def scaling(self) -> dict[str, Any] | None:
        """What a controller has decided and why; None: there is none that we know of."""


class OneGateway:
    """`describe` gives what a backend knows of its replicas, by id; `scaling` what a controller shows."""

    def __init__(
        self,
        plane: Plane,
        describe: Callable[[], dict[str, dict[str, Any]]] = dict,
        scaling: Callable[[], dict[str, Any] | None] = lambda: None,
    ) -> None:
        self._plane = plane
        self._describe = describe
        self.scaling = scaling

    @property
    def ready(self) -> bool:
        return self._plane.ready

    @property
    def spec(self) -> ClusterSpec:
        return self._plane.spec

    async def metrics(self) -> bytes:
        return self._plane.telemetry.registry.render()

    async def state(self) -> dict[str, Any]:
        return state(self._plane, self._plane.clock(), self._describe()) | {"scaling": self.scaling()}

    async def signals(self) -> GatewayReading:
        return signals(self._plane)


class Admin:
    """Handler for net.server.Server. `reloader` gives who reads the cluster file again, if there is one; `told` hears
    of replicas that a controller in another process keeps."""

    def __init__(self, overview: Overview, reloader: Callable[[], Reloader | None], told: Told) -> None:
        self._overview = overview
        self._reloader = reloader
        self._told = told

    async def __call__(self, request: Request, reply: Reply) -> Answer:
        overview = self._overview
        if request.method not in ("GET", "HEAD"):
            only_from_here(reply.peer, request.headers)
            if request.method == "POST" and request.path == "/reload":
                return await self._reload()
            if request.method == "PUT" and request.path == "/replicas":
                return self._replicas(request.body)
            raise MethodNotAllowed("The admin address only answers GET, POST /reload and PUT /replicas.")
        if request.path == "/healthz":
            return Answer(200, _JSON, '{"status":"ok"}')
        if request.path == "/readyz":
            return Answer(200 if overview.ready else 503, _JSON, msgspec.json.encode({"ready": overview.ready}))
        if request.path == "/metrics":
            return Answer(200, CONTENT_TYPE, await overview.metrics())
        if request.path == "/state":
            return Answer(200, _JSON, msgspec.json.encode(await overview.state()))
        if request.path == "/signals":
            return Answer(200, _JSON, msgspec.json.encode(await overview.signals()))
        if request.path == "/targets":
            rows = scrape_targets(overview.spec, (await overview.state())["replicas"])
            return Answer(200, _JSON, msgspec.json.encode(rows))
        if request.path == "/scaling":
            return self._scaling()
        if request.path == "/reload":
            raise MethodNotAllowed("/reload takes POST.")
        raise NotFound(
            "The admin address has /healthz, /readyz, /metrics, /state, /signals, /targets and /scaling.",
            code="unknown_path",
        )

    def _scaling(self) -> Answer:
        scaling = self._overview.scaling()
        if scaling is None:
            raise NotFound(
                "No controller is known here: `kilocard up` and `kilocard control` have one.", code="no_controller"
            )
        return Answer(200, _JSON, msgspec.json.encode(scaling))

    def _replicas(self, body: bytes) -> Answer:
        try:
            roll = _decode_roll(body)
        except msgspec.MsgspecError as error:
            raise _no_list(f"{error}") from error
        for entry in roll.replicas:
            if entry.url is not None and (wrong := _wrong_address(entry.url)):
                raise _no_list(f"the url of {entry.id!r} {wrong}")
        self._told.take(roll)
        return Answer(200, _JSON, '{"status":"ok"}')

    async def _reload(self) -> Answer:
        """Waits for it: what has changed, or everything that is wrong with the file."""
        reloader = self._reloader()
        if reloader is None:
            raise NotFound(
                "This process follows no cluster file: it is built in, or another process reads it.",
                code="no_cluster_file",
            )
        try:
            changed, restart = await reloader.reload()
        except SpecError as error:
            problems = [p._asdict() | {"path": path_text(p.path)} for p in getattr(error, "problems", ())]
            body = {"error": {"message": error.message, "type": error.kind, "code": error.code}, "problems": problems}
            return Answer(400, _JSON, msgspec.json.encode(body))
        status = reloader.status
        done = {"changed": changed, "needs_restart": restart, "generation": status.generation, "hash": status.hash}
        return Answer(200, _JSON, msgspec.json.encode(done))


def _no_list(why: str) -> ClientError:
    return ClientError(f"This is no list of replicas: {why}.", code="invalid_replicas")


@lru_cache(4096)  # a controller says the same each second
def _wrong_address(url: str) -> str:
    """ "": requests could be sent there."""
    try:
        endpoint(url)
    except UnitError as error:
        return f"{error}"
    return ""
